"""How much of a log is kept, who holds back its removal, and who was passed by it."""
