//! The Azure Resource Manager client: pipeline, policies, credentials, lossless documents.
