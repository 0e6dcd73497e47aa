"""Pure facts about a run, each computed once: steps, kernels, floors, gaps, budget."""
