"""From one program over whole arrays to phases: what lies where, what runs when."""
