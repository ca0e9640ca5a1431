"""`tidemark top`: what a broker does, live on one screen."""
