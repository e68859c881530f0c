"""Who may do what: principals and the one `authorize` call that every request passes."""
