"""Side-by-side benchmarks of Tidelog and its peers; run with ``python -m bench``."""
