"""What all measuring shares: data, clocks, outcomes and how they are written, the style of figures."""
