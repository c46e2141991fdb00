"""How it goes: breakers, EWMAs, outcomes. State machines with the time passed in."""
