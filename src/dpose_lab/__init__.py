"""Research code on top of dpose: reproduced papers, attacks, audits, published baselines."""
