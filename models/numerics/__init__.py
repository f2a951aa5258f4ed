"""Hot loops, special functions, compilation, and checks of settings."""
