"""Where other libraries disagree with one another: the questions, what each answers, and the table of it."""
