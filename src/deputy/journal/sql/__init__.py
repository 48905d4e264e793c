"""What both stores share: rows, transactions, the writer, the journal and the queries over SQL."""
