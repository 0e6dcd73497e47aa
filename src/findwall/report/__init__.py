"""Everything a person sees, drawn from the Diagnosis alone. Nothing is computed here."""
