//! The actions of a scenario: each line changes the cluster, Azure, or, before the start, the configuration.
//!
//! Actions that the simulator's scenarios have too are implemented there (`simulator::Action`). Only the lines here
//! name one node, Service, slice or pool, because a world of the simulator has hundreds of each.

mod nodes;

use serde_json::{Value, json};
use simulator::models::arm::{PoolSpec, SyncMode};
use simulator::models::kube::build::{self, Family};
use simulator::models::kube::{Resource, StreamingLists};
use simulator::{Action, duration};

use super::stage::Stage;
use super::world::{self, Service, ServiceName, split_pool};

/// The outcome of a line.
type Done = Result<(), String>;

impl Stage {
    /// Carries out a `given` line that is not a change: the configuration and the size of the world.
    pub async fn prepare(&mut self, words: &[&str]) -> Done {
        match words {
            ["nodes", count] => self.prepare_nodes(count, false).await,
            ["nodes", count, "dual"] => self.prepare_nodes(count, true).await,
            ["load", "balancers", names @ ..] => {
                let configuration = |name: &&str| json!({ "name": name, "primaryVMSet": name });
                let all: Vec<Value> = names.iter().map(configuration).collect();
                self.cloud["multipleStandardLoadBalancerConfigurations"] = all.into();
                let names: Vec<String> = names.iter().map(ToString::to_string).collect();
                let add = move |azure: &mut simulator::Azure, _| {
                    names.iter().for_each(|name| azure.model.add_load_balancer(name));
                };
                self.fakes.azure.ask(add).await;
                Ok(())
            }
            ["load", "balancer", "single", name] => self.prepare_single(name).await,
            ["controller", key, value @ ..] => {
                let path = format!("/{}", key.replace('.', "/"));
                set(&mut self.controller, &path, value_of(value))
            }
            ["dry", "run"] => {
                self.dry_run = true;
                Ok(())
            }
            ["timeout", time] => {
                self.timeout = duration(time)?;
                Ok(())
            }
            ["service", name, rest @ ..] => {
                let nodes = self.create_service(name, rest).await?;
                let service = ServiceName::parse(name);
                for family in self.world.service(&service)?.families.clone() {
                    self.fill_pool(&service.pool(family), &nodes).await?;
                }
                Ok(())
            }
            ["pool", pool, "holds", nodes @ ..] => self.fill_pool(pool, nodes).await,
            other => self.action(other).await,
        }
    }

    /// Creates one load balancer and its internal one, as in a cluster without
    /// `multipleStandardLoadBalancerConfigurations`. There, no Service has its own pool, and the pools of the cluster
    /// are NIC-based.
    async fn prepare_single(&mut self, name: &str) -> Done {
        let keys = self.cloud.as_object_mut().ok_or("the cloud configuration is no map")?;
        keys.remove("multipleStandardLoadBalancerConfigurations");
        keys.insert("loadBalancerName".to_owned(), name.into());
        keys.insert("loadBalancerBackendPoolConfigurationType".to_owned(), "nodeIPConfiguration".into());
        let names = [name.to_owned(), format!("{name}-internal")];
        let add = move |azure: &mut simulator::Azure, _| {
            names.iter().for_each(|name| azure.model.add_load_balancer(name));
        };
        self.fakes.azure.ask(add).await;
        Ok(())
    }

    async fn prepare_nodes(&mut self, count: &str, dual: bool) -> Done {
        let count: u16 = count.parse().map_err(|_| format!("{count:?} is not a number of nodes"))?;
        for number in 1..=count {
            let name = format!("node-{number}");
            self.world.set_node(&name, world::node_ips(number, dual));
            self.write_node(&name).await?;
        }
        Ok(())
    }

    /// Puts these nodes into a pool, as if it had always held them.
    async fn fill_pool(&mut self, pool: &str, nodes: &[&str]) -> Done {
        let (spec, (load_balancer, pool)) = (self.world.pool(pool, nodes)?, self.lb_and_pool(pool).await?);
        self.fakes.azure.ask(move |azure, _| azure.model.add_pool(&load_balancer, &pool, &spec)).await;
        Ok(())
    }

    /// Carries out one change.
    pub async fn action(&mut self, words: &[&str]) -> Done {
        match words {
            ["node", name, rest @ ..] => self.change_node(name, rest).await,
            ["service", name, rest @ ..] => self.change_service(name, rest).await,
            ["slice", target, "malformed"] => self.garble_slice(target).await,
            ["slice", target, rest @ ..] => {
                let (service, number) = slice_target(target)?;
                let (family, rest) = match rest {
                    [family @ ("IPv4" | "IPv6"), rest @ ..] => (Some(*family), rest),
                    rest => (None, rest),
                };
                let endpoints = world::endpoints(rest)?;
                let clock = self.clock();
                let time = clock.rfc3339(clock.now_us());
                let mut slices = self.world.slices(&service, number, &endpoints)?;
                slices.retain(|slice| family.is_none_or(|family| slice["addressType"] == family));
                self.apply(slices.into_iter().map(|slice| build::triggered_at(slice, &time)).collect()).await
            }
            ["delete", "slice", target] => {
                let (service, number) = slice_target(target)?;
                for slice in self.world.slices(&service, number, &[])? {
                    let name = slice["metadata"]["name"].as_str().unwrap_or_default();
                    if !self.fakes.delete(Resource::EndpointSlices, &service.namespace, name).await {
                        return Err(format!("there is no slice {target}"));
                    }
                }
                Ok(())
            }
            ["arm" | "lists", ..] => self.happens(words).await,
            ["operator", rest @ ..] => self.operator_act(rest).await,
            ["cloud", key, value @ ..] => set(&mut self.cloud, &format!("/{key}"), value_of(value)),
            ["controller", rest @ ..] => self.change_controller(rest).await,
            ["apiserver", rest @ ..] => self.change_apiserver(rest).await,
            other => self.change_azure(other).await,
        }
    }

    /// Creates the objects of a Service and, as the cloud-controller-manager does, its rules and empty pools. Returns
    /// the nodes that have an endpoint which does not terminate.
    async fn create_service<'w>(&mut self, name: &str, words: &[&'w str]) -> Result<Vec<&'w str>, String> {
        let (families, words) = match words {
            ["dual", rest @ ..] => (vec![Family::V4, Family::V6], rest),
            rest => (vec![Family::V4], rest),
        };
        let ["on", load_balancer, endpoints @ ..] = words else {
            return Err("a new Service is [dual] on <load balancer> [endpoints]".to_owned());
        };
        let key = ServiceName::parse(name);
        let service = Service {
            families: families.clone(),
            policy: "Local".to_owned(),
            paused: false,
            malformed: false,
        };
        self.world.set_service(&key, service);
        for family in families {
            let (balancer, rule, pool) = ((*load_balancer).to_owned(), key.rule(family), key.pool(family));
            let spec = self.world.pool(&pool, &[])?;
            let make = move |azure: &mut simulator::Azure, _| {
                if !azure.model.pools(&balancer).any(|known| known == pool) {
                    azure.model.add_pool(&balancer, &pool, &spec);
                }
                azure.model.add_rule(&balancer, &rule, &pool, true);
            };
            self.fakes.azure.ask(make).await;
        }
        self.apply(vec![self.world.service_object(&key)?]).await?;
        if !endpoints.is_empty() {
            self.apply(self.world.slices(&key, 0, &world::endpoints(endpoints)?)?).await?;
        }
        let mut staying = true;
        let mut nodes = Vec::new();
        for word in endpoints {
            match *word {
                "hosted" | "not-ready" => staying = true,
                "terminating" => staying = false,
                "empty" | "nowhere" => {}
                node if staying => nodes.push(node),
                _ => {}
            }
        }
        Ok(nodes)
    }

    async fn change_service(&mut self, name: &str, words: &[&str]) -> Done {
        let key = ServiceName::parse(name);
        match words {
            ["on" | "dual", ..] => return self.create_service(name, words).await.map(drop),
            ["deleted"] => {
                let there = self.fakes.delete(Resource::Services, &key.namespace, &key.name).await;
                return if there { Ok(()) } else { Err(format!("there is no Service {name}")) };
            }
            ["policy", policy] => (*policy).clone_into(&mut self.world.service_mut(&key)?.policy),
            ["paused"] => self.world.service_mut(&key)?.paused = true,
            ["unpaused"] => self.world.service_mut(&key)?.paused = false,
            ["malformed"] => self.world.service_mut(&key)?.malformed = true,
            ["repaired"] => self.world.service_mut(&key)?.malformed = false,
            other => return Err(format!("a Service does not know {other:?}")),
        }
        self.apply(vec![self.world.service_object(&key)?]).await
    }

    async fn garble_slice(&mut self, target: &str) -> Done {
        let (service, number) = slice_target(target)?;
        let mut slices = self.world.slices(&service, number, &[])?;
        slices.iter_mut().for_each(|slice| slice["endpoints"] = json!("some, perhaps"));
        self.apply(slices).await
    }

    async fn apply(&self, objects: Vec<Value>) -> Done {
        self.fakes.apply(objects).await.map_err(|refused| refused.to_string())
    }

    async fn change_azure(&mut self, words: &[&str]) -> Done {
        match words {
            ["rule", rule, "for", pool] => {
                let ((lb, pool), rule) = (self.lb_and_pool(pool).await?, text(rule));
                self.fakes.azure.ask(move |azure, _| azure.model.add_rule(&lb, &rule, &pool, true)).await;
            }
            ["no", "rule", "of", service] => {
                let key = ServiceName::parse(service);
                for family in self.world.service(&key)?.families.clone() {
                    let ((lb, _), rule) = (self.lb_and_pool(&key.pool(family)).await?, key.rule(family));
                    self.fakes.azure.ask(move |azure, _| azure.model.remove_rule(&lb, &rule)).await;
                }
            }
            ["outbound", "rule", rule, "for", pool] => {
                let ((lb, pool), rule) = (self.lb_and_pool(pool).await?, text(rule));
                self.fakes.azure.ask(move |azure, _| azure.model.add_outbound_rule(&lb, &rule, &pool)).await;
            }
            ["nat", "rule", rule, "for", pool] => {
                let ((lb, pool), rule) = (self.lb_and_pool(pool).await?, text(rule));
                self.fakes
                    .azure
                    .ask(move |azure, _| azure.model.add_inbound_nat_rule(&lb, &rule, &pool))
                    .await;
            }
            ["pool", pool, "nic-backed", nodes @ ..] => {
                let (spec, (lb, pool)) = (self.world.interface_pool(nodes)?, self.lb_and_pool(pool).await?);
                self.fakes.azure.ask(move |azure, _| azure.model.add_pool(&lb, &pool, &spec)).await;
            }
            ["pool", pool, "automatic", nodes @ ..] => {
                let spec = self.world.pool(pool, nodes)?;
                let spec = PoolSpec { sync_mode: Some(SyncMode::Automatic), ..spec };
                let (lb, pool) = self.lb_and_pool(pool).await?;
                self.fakes.azure.ask(move |azure, _| azure.model.add_pool(&lb, &pool, &spec)).await;
            }
            ["pool", pool, "by", "subnet", nodes @ ..] => {
                let (spec, (lb, pool)) =
                    (self.world.subnet_pool(pool, nodes)?, self.lb_and_pool(pool).await?);
                self.fakes.azure.ask(move |azure, _| azure.model.add_pool(&lb, &pool, &spec)).await;
            }
            ["pool", pool, "removed"] => {
                let (lb, pool) = self.lb_and_pool(pool).await?;
                self.fakes.azure.ask(move |azure, _| azure.model.remove_pool(&lb, &pool)).await;
            }
            ["load", "balancer", name, "created", "again"] => self.create_again(name).await,
            ["load", "balancer", name, "failed"] => {
                let name = text(name);
                self.fakes.azure.ask(move |azure, _| azure.model.fail_load_balancer(&name)).await;
            }
            ["unknown", "fields"] => {
                self.fakes.azure.ask(|azure, _| azure.model.plant_unknown_fields()).await;
            }
            ["foreign", "PUT", pool, nodes @ ..] => {
                let ((lb, pool), members) = (self.lb_and_pool(pool).await?, self.world.entries(pool, nodes)?);
                was_done(self.fakes.foreign_put(&lb, &pool, members).await)?;
            }
            ["foreign", state @ ("down" | "up" | "none"), pool, node] => {
                self.set_state(state, pool, node).await?;
            }
            other => return Err(format!("unknown action {other:?}")),
        }
        Ok(())
    }

    /// Deletes a load balancer and creates it again, with its rules and with empty pools.
    async fn create_again(&self, name: &str) {
        let name = text(name);
        let create = move |azure: &mut simulator::Azure, _| {
            let model = &mut azure.model;
            let pools: Vec<String> = model.pools(&name).map(str::to_owned).collect();
            let before: Vec<Value> = pools.iter().filter_map(|pool| model.pool_json(&name, pool)).collect();
            model.remove_load_balancer(&name);
            model.add_load_balancer(&name);
            for (pool, before) in pools.iter().zip(&before) {
                model.add_pool(&name, pool, &PoolSpec::default());
                let rules = before["properties"]["loadBalancingRules"].as_array().into_iter().flatten();
                for rule in rules.filter_map(|rule| rule["id"].as_str()?.rsplit('/').next()) {
                    model.add_rule(&name, rule, pool, true);
                }
            }
        };
        self.fakes.azure.ask(create).await;
    }

    /// Returns the load balancer and the name of a pool. Without a named load balancer, it is one that has a pool of
    /// this name.
    pub async fn lb_and_pool(&self, pool: &str) -> Result<(String, String), String> {
        let (load_balancer, name) = split_pool(pool);
        if let Some(load_balancer) = load_balancer {
            return Ok((load_balancer.to_owned(), name.to_owned()));
        }
        let wanted = name.to_owned();
        let find = move |azure: &mut simulator::Azure, _| {
            let model = &azure.model;
            let mut having = model.load_balancers().filter(|lb| model.pools(lb).any(|known| known == wanted));
            having.next().map(str::to_owned)
        };
        let found = self.fakes.azure.ask(find).await;
        let found =
            found.ok_or_else(|| format!("there is no pool {pool}; a new one is <load balancer>/<pool>"))?;
        Ok((found, name.to_owned()))
    }

    /// Carries out an action of the simulator's own scenarios on ARM and the API server. The words are the same.
    async fn happens(&self, words: &[&str]) -> Done {
        let scene =
            Action::parse(words)?.alone().ok_or_else(|| format!("{words:?} needs a simulated world"))?;
        let on_azure = scene.clone();
        self.fakes.cluster.ask(move |cluster, now_us| scene.on_cluster(cluster, now_us)).await;
        self.fakes.azure.ask(move |azure, now_us| on_azure.on_azure(azure, now_us)).await;
        Ok(())
    }

    /// Sends the operator's request to the admin API.
    async fn operator_act(&mut self, words: &[&str]) -> Done {
        let known = "operator releases, pauses or resumes everything or a pool, or releases node <node>";
        let (wish, scope) = match words {
            [wish, scope @ ..] if !scope.is_empty() => (*wish, scope),
            other => return Err(format!("unknown request {other:?}: {known}")),
        };
        let path = match wish {
            "releases" => "/api/v1/held/release",
            "pauses" => "/api/v1/pause",
            "resumes" => "/api/v1/resume",
            other => return Err(format!("unknown request {other}: {known}")),
        };
        let body = match scope {
            ["everything"] => json!({ "scope": "everything" }),
            ["node", node] => json!({ "scope": "node", "name": node }),
            [pool] => {
                let (balancer, pool) = self.lb_and_pool(pool).await?;
                json!({ "scope": "pool", "loadBalancer": balancer, "backendPool": pool })
            }
            other => return Err(format!("{other:?} is no scope: {known}")),
        };
        match self.post(path, &body).await? {
            (200, _) => Ok(()),
            (status, text) => Err(format!("{path}: {status}: {text}")),
        }
    }

    async fn change_apiserver(&mut self, words: &[&str]) -> Done {
        match *words {
            ["raw", kind, ref line @ ..] => {
                let resource = watched(kind)?;
                let mut bytes = line.join(" ").into_bytes();
                bytes.push(b'\n');
                let plant = move |model: &mut simulator::models::kube::KubeModel| {
                    let open: Vec<_> =
                        model.open_watches().into_iter().filter(|open| open.1 == resource).collect();
                    open.iter().for_each(|(id, _, _)| model.raw_line(*id, &bytes));
                };
                self.fakes.plant(plant).await;
            }
            ["streaming", how] => {
                let how = match how {
                    "refused-as-invalid" => StreamingLists::RefusedAsInvalid,
                    "refused-as-bad-request" => StreamingLists::RefusedAsBadRequest,
                    "refused-by-error-event" => StreamingLists::RefusedByErrorEvent,
                    other => return Err(format!("streaming lists cannot be {other}")),
                };
                self.fakes.plant(move |model| model.refuse_streaming_lists(how)).await;
            }
            ref other => return self.happens(&[&["apiserver"][..], other].concat()).await,
        }
        Ok(())
    }
}

/// Returns an error if another client's write was refused.
fn was_done(status: u16) -> Done {
    if (200..300).contains(&status) { Ok(()) } else { Err(format!("the foreign PUT was answered {status}")) }
}

/// Returns the watched resource of this name.
fn watched(kind: &str) -> Result<Resource, String> {
    match kind {
        "services" => Ok(Resource::Services),
        "endpointslices" => Ok(Resource::EndpointSlices),
        "nodes" => Ok(Resource::Nodes),
        other => Err(format!("{other} are not watched")),
    }
}

/// Parses the name of a slice: `web` is the first slice of its Service, `web/2` the second.
fn slice_target(text: &str) -> Result<(ServiceName, usize), String> {
    let (service, number) = text.split_once('/').unwrap_or((text, "1"));
    let number: usize = number.parse().map_err(|_| format!("{number:?} is not a number of a slice"))?;
    let index = number.checked_sub(1).ok_or("slices are counted from 1")?;
    Ok((ServiceName::parse(service), index))
}

/// Parses JSON. Any other text becomes a string.
fn value_of(words: &[&str]) -> Value {
    let text = words.join(" ");
    serde_json::from_str(&text).unwrap_or_else(|_| Value::from(text))
}

/// Sets the value at a pointer, and creates missing maps on the way.
fn set(within: &mut Value, pointer: &str, value: Value) -> Done {
    let mut node = within;
    for key in pointer.split('/').skip(1) {
        let map = node.as_object_mut().ok_or_else(|| format!("{pointer}: {key} is not in a map"))?;
        node = map.entry(key).or_insert_with(|| json!({}));
    }
    *node = value;
    Ok(())
}

fn text(word: &str) -> String {
    word.to_owned()
}
