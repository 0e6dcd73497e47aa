"""What would the step be if this were different? The step as a graph, calibrated, and run again on paper."""
