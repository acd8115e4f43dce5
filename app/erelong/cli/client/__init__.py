"""The commands that use a service over HTTP. They need nothing but the standard library, except `work`."""
