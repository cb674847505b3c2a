"""What scripts share: command lines, clocks and tables, comparisons at equal oracle calls, training of networks."""
