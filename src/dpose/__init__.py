"""dpose: differentially private human vision."""
