"""Research on top of dpose, which needs none of it: papers repeated, attacks, audits, published baselines."""
