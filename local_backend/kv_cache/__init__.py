"""Where keys and values of running sequences live."""
