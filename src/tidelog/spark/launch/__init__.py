"""Starting Spark: a Java, a home, a session, its directories, its workers."""
