// The requests of operators. The page sends none itself: it shows commands that work without changes.

/** Quotes text as one argument for a shell: foreign names must not become a command. */
const quoted = (text) => (/^[\w.:/@=-]+$/.test(text) ? text : `'${String(text).replaceAll("'", "'\\''")}'`);

const installation = () => status.value?.installation ?? {};
const namespace = () => installation().namespace ?? 'kube-system';
const operator = () => installation().operatorServiceAccount ?? 'operator';
// The API server of `simulate` accepts every token, and no kubectl reaches it.
const simulated = () => installation().simulated === true;
const leads = () => ['leader', 'alone'].includes(status.value?.leadership?.role);

function postCommand(path, body) {
  const token = simulated() ? 'simulator' : `$(kubectl create token ${quoted(operator())} --namespace ${quoted(namespace())})`;
  return `curl --header "Authorization: Bearer ${token}" --data ${quoted(JSON.stringify(body))} ${quoted(new URL(path, location.href).href)}`;
}

let copied = null;

/** Returns a command with a button that copies it. If the browser prevents copying, the button selects the text. */
function command(text) {
  const copy = (event) => {
    const shown = event.currentTarget.previousElementSibling;
    navigator.clipboard.writeText(text).then(() => { copied = text; draw(); }, () => getSelection().selectAllChildren(shown));
  };
  return h('div', { class: 'command', key: text }, h('pre', null, text), h('button', { type: 'button', onclick: copy }, copied === text ? 'Copied' : 'Copy'));
}

/** Returns a request under its title. `who`: 'all' replicas handle it; 'any' process does, even in a dry run; else the leader. */
function request(title, what, path, body, who) {
  if (status.value?.dryRun && who !== 'any') return null;
  const way = who || leads() ? command(postCommand(path, body)) : leaderAlone();
  return h('details', { key: `${path} ${JSON.stringify(body)}`, class: 'request' }, h('summary', null, title), h('p', { class: 'faint' }, what), way);
}

/** Explains how to reach the leader. */
function leaderAlone() {
  const holder = status.value?.leadership?.holder;
  if (!holder || simulated()) return h('p', null, `Only the leader does this, and ${holder ? 'this replica does not lead' : 'no leader is known'}.`);
  const pod = holder.slice(0, Math.max(holder.lastIndexOf('_'), 0)) || holder;
  return [h('p', null, 'Only the leader does this. Open its page, at the address that this prints:'),
    command(`kubectl --namespace ${quoted(namespace())} port-forward pod/${quoted(pod)} :${installation().adminPort}`)];
}

/** Returns the commands that the operator runs once if the chart has created no service account for operators. */
function drawOnce() {
  if (!status.value || simulated() || installation().operatorServiceAccount) return null;
  const [name, where] = [quoted(operator()), quoted(namespace())];
  const commands = [`kubectl create serviceaccount ${name} --namespace ${where}`,
    "kubectl create clusterrole pool-controller-requests --verb=get,post --non-resource-url='/azure-backend-pool-controller/*'",
    `kubectl create clusterrolebinding pool-controller-requests --clusterrole=pool-controller-requests --serviceaccount=${where}:${name}`];
  return h('details', { key: 'once', class: 'once' }, h('summary', null, 'Before the first request: create a service account that may ask'),
    h('p', { class: 'faint' }, "The chart creates one with operator.enabled. Without it, these commands create the one that this page names:"), commands.map((text) => command(text)));
}

const requests = (...all) => (all.some(Boolean) ? [h('h3', null, 'Requests'), all, drawOnce()] : []);

// ---- each request ----

const everything = { scope: 'everything' };
const REASON = 'say why';

const pauseOf = (scope, what) => request(`Pause ${what}`, 'It is compared, and not written until you resume it. Replace the reason.', 'api/v1/pause', { ...scope, reason: REASON }, 'all');
const resumeOf = (scope, what) => request(`Resume ${what}`, 'Ends this pause. Other pauses stay.', 'api/v1/resume', scope, 'all');

/** Returns whether everything, a pool or a Service is paused. */
const isPaused = (scope, target) => each(status.value?.pauses?.items).some((pause) => pause.scope === scope && (pause.target ?? '') === target);

const pauseOrResume = (scope, what, kind, target) => (isPaused(kind, target) ? resumeOf(scope, what) : pauseOf(scope, what));

const writesNothing = () => status.value?.mode === 'observe' || isPaused('everything', '');

function releaseOf(scope, what) {
  if (writesNothing()) return null;
  return request(`Release ${what}`, 'Removes the members that a guard keeps. Check first that the cluster is as it reports.', 'api/v1/held/release', scope);
}

const releaseAll = () => releaseOf(everything, 'everything that is held back');
const removalsStopped = () => Boolean(status.value?.guards?.removalsStopped);

const compareOf = (loadBalancer) => request(loadBalancer ? `Compare the pools of ${loadBalancer} now` : 'Compare all pools now', 'Reads from Azure and writes nothing.', 'api/v1/compare', loadBalancer ? { loadBalancer } : {}, 'any');

const openGate = (gate) => request(`Ask Azure for ${gate} again`, 'Opens the throttle gate before the time that Azure named. Azure may close it again.', 'api/v1/gates/open', { class: gate });

const logLevel = () => request('Log more lines', 'On this replica, until it ends. Levels: error, warn, info, debug, trace.', 'api/v1/log-level', { level: 'debug' }, 'any');

function poolRequests(pool) {
  const { loadBalancer, backendPool } = pool;
  const scope = { scope: 'pool', loadBalancer, backendPool };
  const path = `api/v1/queues/${encodeURIComponent(loadBalancer)}/${encodeURIComponent(backendPool)}/attempt`;
  const attempt = pool.state !== 'paused' && pool.state !== 'quarantined' && request('Attempt it now', 'Without waiting for its window and interval. A pool that is in sync is read once more.', path, {});
  const release = pool.held && pool.held.reason !== 'add_only' && (removalsStopped() ? releaseAll() : releaseOf(scope, 'the held removal of this pool'));
  return requests(release, attempt, compareOf(loadBalancer), pauseOrResume(scope, 'this pool', 'pool', `${loadBalancer}/${backendPool}`));
}

function serviceRequests(service, pools) {
  const scope = { scope: 'service', namespace: service.namespace, name: service.name };
  const held = each(pools).some((pool) => 'held' in pool && pool.held && pool.held.reason !== 'add_only');
  return requests(held && (removalsStopped() ? releaseAll() : releaseOf(scope, 'the held removals of this Service')),
    pauseOrResume(scope, 'this Service', 'service', `${service.namespace}/${service.name}`));
}

const nodeRequests = (node) => requests(node.state === 'held' && releaseOf({ scope: 'node', name: node.name }, 'this node, so that its traffic is turned away'));

function allRequests() {
  const { held, gates, adminState } = status.value;
  const closed = each(gates).filter((gate) => gate.blockedBy === 'throttled');
  const release = (each(held).some((one) => one.held?.reason !== 'add_only') || adminState?.held > 0) && releaseAll();
  return h('div', { class: 'requests', key: 'requests' }, requests(pauseOrResume(everything, 'everything', 'everything', ''), release, closed.map((gate) => openGate(gate.class)), compareOf(null), logLevel()));
}
