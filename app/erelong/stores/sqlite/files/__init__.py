"""The files beside the embedded database: lock, watermark, disk reserve and claim log."""
