"""The commands: `commands` names them all, the other modules are imported when their command is named."""
