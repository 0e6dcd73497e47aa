"""The nouns every stage shares: events, intervals, runs, the catalogue of causes, the Diagnosis."""
