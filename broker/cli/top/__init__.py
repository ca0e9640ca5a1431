"""`tidemark top`: what a broker is doing, on one screen, as it goes on."""
