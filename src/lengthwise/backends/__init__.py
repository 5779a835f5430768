"""Backends run packs and buckets and give log-probabilities of wanted tokens."""
