//! The generic actix shell and the ports it drives.
