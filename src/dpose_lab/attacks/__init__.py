"""What an adversary can do: audits of training and of single mechanisms, membership inference, planted faults."""
