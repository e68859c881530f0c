"""Records as Arrow columns, both ways, without an object for each record. Needs pyarrow only."""
