"""What a change really gives: trials in fresh processes, and what their samples prove."""
