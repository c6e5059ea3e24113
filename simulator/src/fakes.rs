//! Both running fakes: their addresses, and the changes that a scenario can make to them. ARM can also run without the
//! API server, beside a real cluster.

use serde_json::Value;
use simulator_models::arm::{self, ArmModel, Counters, LogEntry, Member};
use simulator_models::kube::{self, KubeModel, Refused, Resource};

use crate::azure::Azure;
use crate::clock::Clock;
use crate::cluster::Cluster;
use crate::http::Listener;
use crate::owner::Owner;

/// Initial settings of the fakes.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// ARM's settings; the endpoint is filled in.
    pub arm: arm::Settings,
    /// The API server's settings; the epoch becomes the wall clock's.
    pub kube: kube::Settings,
}

/// A running ARM without an API server. Dropping this value stops it.
pub struct Arm {
    /// Base URL, `http://127.0.0.1:port`.
    pub url: String,
    /// The owner of its model.
    pub azure: Owner<Azure>,
    listener: Listener,
}

impl Arm {
    /// Starts ARM on the current runtime, with a listener on a free loopback port. Sets the endpoint in the settings.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(settings: arm::Settings, clock: Clock) -> std::io::Result<Self> {
        let azure = Owner::start(Azure::new(ArmModel::new(settings)), clock);
        let listener = Listener::arm(azure.clone())?;
        let url = listener.url();
        let endpoint = url.clone();
        azure.ask(move |azure, _| azure.model.set_endpoint(&endpoint)).await;
        Ok(Self { url, azure, listener })
    }
}

/// The running fakes. [`Fakes::stop`] or dropping this value stops them.
pub struct Fakes {
    /// Base URL of ARM, `http://127.0.0.1:port`.
    pub arm_url: String,
    /// Base URL of the API server, `http://127.0.0.1:port`.
    pub kubernetes_url: String,
    /// The owner of ARM's model.
    pub azure: Owner<Azure>,
    /// The owner of the API server's model.
    pub cluster: Owner<Cluster>,
    listeners: [Listener; 2],
}

impl Fakes {
    /// Starts both on the current runtime, each with a listener on a free loopback port.
    ///
    /// # Errors
    /// No port is free.
    pub async fn start(settings: Settings) -> std::io::Result<Self> {
        let clock = Clock::start();
        let Arm { url: arm_url, azure, listener } = Arm::start(settings.arm, clock).await?;
        let model = KubeModel::new(kube::Settings { epoch_s: clock.epoch_s(), ..settings.kube });
        let cluster = Owner::start(Cluster::new(model), clock);
        let kubernetes = Listener::kubernetes(cluster.clone())?;
        let kubernetes_url = kubernetes.url();
        Ok(Self { arm_url, kubernetes_url, azure, cluster, listeners: [listener, kubernetes] })
    }

    /// Returns the clock of both models.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.azure.clock()
    }

    /// Creates or replaces objects, as controllers of the cluster do.
    ///
    /// # Errors
    /// The model rejects one of them; the previous ones are applied.
    pub async fn apply(&self, objects: Vec<Value>) -> Result<(), Refused> {
        let apply = |cluster: &mut Cluster, now_us| {
            objects.into_iter().try_for_each(|object| cluster.model.apply(object, now_us).map(drop))
        };
        self.cluster.ask(apply).await
    }

    /// Deletes an object; returns false if there is none.
    pub async fn delete(&self, resource: Resource, namespace: &str, name: &str) -> bool {
        let (namespace, name) = (namespace.to_owned(), name.to_owned());
        self.cluster
            .ask(move |cluster, now_us| cluster.model.delete(resource, &namespace, &name, now_us))
            .await
    }

    /// Returns the members of a pool; `None` if there is no such pool.
    pub async fn members(&self, load_balancer: &str, pool: &str) -> Option<Vec<Member>> {
        let (load_balancer, pool) = (load_balancer.to_owned(), pool.to_owned());
        self.azure.ask(move |azure, _| azure.model.members(&load_balancer, &pool)).await
    }

    /// Returns ARM's counters.
    pub async fn counters(&self) -> Counters {
        self.azure.ask(|azure, _| azure.model.counters()).await
    }

    /// Returns the requests that ARM has answered, oldest first.
    pub async fn log(&self) -> Vec<LogEntry> {
        self.azure.ask(|azure, _| azure.model.log().to_vec()).await
    }

    /// Writes a pool as another client (name and IP of each member); returns the status.
    pub async fn foreign_put(&self, load_balancer: &str, pool: &str, members: Vec<(String, String)>) -> u16 {
        let (load_balancer, pool) = (load_balancer.to_owned(), pool.to_owned());
        self.azure
            .ask(move |azure, now_us| {
                let members: Vec<(&str, &str)> =
                    members.iter().map(|(name, ip)| (name.as_str(), ip.as_str())).collect();
                azure.foreign_put(&load_balancer, &pool, &members, now_us)
            })
            .await
    }

    /// Changes ARM's settings; changed faults start counting again.
    pub async fn tune_arm(&self, change: impl FnOnce(&mut arm::Settings) + Send + 'static) {
        self.azure.ask(|azure, _| azure.model.reconfigure(change)).await;
    }

    /// Sets whether ARM aborts every connection.
    pub async fn arm_down(&self, down: bool) {
        self.azure.ask(move |azure, _| azure.down = down).await;
    }

    /// Sets by how many seconds the wall clocks of ARM and of the API server are ahead of the local one.
    pub async fn clocks_ahead(&self, arm_s: i64, kubernetes_s: i64) {
        self.azure.ask(move |azure, _| azure.ahead_s = arm_s).await;
        self.cluster.ask(move |cluster, _| cluster.ahead_s = kubernetes_s).await;
    }

    /// Changes the API server's model, for example to inject a fault.
    pub async fn plant(&self, fault: impl FnOnce(&mut KubeModel) + Send + 'static) {
        self.cluster.ask(|cluster, _| fault(&mut cluster.model)).await;
    }

    /// Stops both listeners immediately.
    pub async fn stop(self) {
        for listener in &self.listeners {
            listener.stop().await;
        }
    }
}
