//! The pipeline of the SDK with our policies, and without its retries: the writer retries (W4).

use std::sync::Arc;

use azure_core::http::policies::Policy;
use azure_core::http::{ClientOptions, Pipeline, RetryOptions, Transport};

use crate::credential::Tokens;
use crate::policy::{BearerPolicy, GatePolicy, Gates, PermitPolicy, RequestIdPolicy, UserAgentPolicy};
use crate::settings::{SetUpError, Settings};

/// Builds the pipeline.
pub(crate) fn build(
    settings: &Settings,
    gates: &Arc<Gates>,
    transport: Transport,
) -> Result<Pipeline, SetUpError> {
    let tokens = Tokens::new(&settings.identity, &settings.login, &transport, settings.clocks.clone())
        .map_err(|source| SetUpError::Credential { source })?;
    let permit: Arc<dyn Policy> = Arc::new(PermitPolicy::new(Arc::clone(&settings.clocks.now)));
    let gate = GatePolicy::new(Arc::clone(gates), Arc::clone(&settings.clocks.now));
    let mut per_try: Vec<Arc<dyn Policy>> = vec![Arc::new(gate), Arc::clone(&permit)];
    if let Some(tokens) = tokens {
        per_try.push(Arc::new(BearerPolicy(tokens)));
        per_try.push(permit);
    }
    let options = ClientOptions {
        per_call_policies: vec![Arc::new(UserAgentPolicy(settings.user_agent.clone()))],
        retry: RetryOptions::none(),
        transport: Some(transport),
        ..ClientOptions::default()
    };
    Ok(Pipeline::new(
        option_env!("CARGO_PKG_NAME"),
        option_env!("CARGO_PKG_VERSION"),
        options,
        vec![Arc::new(RequestIdPolicy)],
        per_try,
        None,
    ))
}
