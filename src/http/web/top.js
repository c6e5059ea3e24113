// The top of the page: which replica answers, what is out of sync, what needs attention, and numbers.

function drawWho() {
  const said = status.value;
  if (!said) return [h('span', { class: 'faint' }, 'reading …')];
  const { leadership, dryRun, mode, snapshotAgeSeconds, version, installation: at } = said;
  const since = leadership && ` for ${span(leadership.roleSeconds)}`;
  const name = (text) => h('span', { class: 'name' }, text ?? 'unknown');
  return [
    h('span', null, 'cluster ', name(at?.clusterName)),
    h('span', null, 'subscription ', name(at?.subscription)),
    h('span', null, 'resource group ', name(at?.resourceGroup)),
    leadership ? word('role', leadership.role, since) : h('span', { class: 'tag wait' }, 'role not known yet'),
    dryRun ? h('strong', { class: 'wait' }, 'dry run') : h('span', { class: mode === 'enforce' ? '' : 'wait' }, `mode ${mode ?? 'not known yet'}`),
    leadership && h('span', { class: 'faint' }, 'this is ', name(leadership.identity), `, term ${some(leadership.term)}`),
    h('span', { class: 'faint' }, snapshotAgeSeconds === null ? 'no snapshot yet' : `snapshot ${span(snapshotAgeSeconds)} old`),
    h('span', { class: 'faint' }, `version ${version}`),
  ];
}

/** Draws the pools that are out of sync, each with the reason and the time. They come before anything else. */
function drawSync() {
  const said = status.value;
  if (!said) return [];
  const { outOfSync, wouldChange, pools, synced, dryRun, mode } = said;
  const late = outOfSync?.pools ?? 0;
  const compared = wouldChange?.pools ?? 0;
  const all = h('button', { class: 'link', type: 'button', onclick: () => turn({ ...NO_FILTER, view: 'pools', outOfSync: 'true' }) }, 'Show all');
  const why = dryRun ? 'this is a dry run' : mode === 'observe' ? 'the mode is observe' : 'they are paused';
  const unknown = pools?.byState?.unknown ?? 0;
  const titles = [];
  if (late > 0) titles.push(h('h2', { key: 'late', class: 'bad' }, `${late} of ${count(pools?.total ?? null, 'pool')} ${late === 1 ? 'is' : 'are'} out of sync `, all));
  if (compared > 0) titles.push(h('h2', { key: 'compared', class: 'wait' }, `${count(compared, 'pool')} would be changed (${wouldChange.add} to add, ${wouldChange.remove} to remove): not written, because ${why} `, late ? null : all));
  if (!late && !compared) {
    const isKnown = synced?.lists && synced?.discovery && !unknown && !wouldChange?.unseen;
    titles.push(h('h2', { key: 'none', class: isKnown ? 'good' : 'wait' }, isKnown ? `${pools?.total === 1 ? 'The only pool is' : `All ${some(pools?.total ?? null)} pools are`} in sync.` : 'No pool is known to be out of sync, but not everything has been read yet.'));
  }
  return [titles, h('ul', { key: 'list' }, each(outOfSync?.items).map(outOfSyncLine))];
}

function outOfSyncLine(pool) {
  const name = poolName(pool);
  const seconds = pool.outOfSyncSeconds;
  const since = seconds === null ? 'only compared' : [h('strong', null, `${pool.outOfSyncAtLeast ? 'at least ' : ''}${span(seconds)}`), ` since ${clock(pool.outOfSyncSince)}`];
  // Every change puts a pool out of sync for a moment. More than a minute is unusual.
  return h('li', { key: name, class: seconds > 900 ? 'bad' : seconds > 60 ? 'wait' : '' },
    h('div', null, opener('pool', name), name.endsWith(filledBy(pool).replace('/', '-')) ? null : h('div', { class: 'faint' }, filledBy(pool))), h('div', null, since), h('div', null, pool.why ?? 'it does not match its level'));
}

const NO_FILTER = { state: '', outOfSync: '', reason: '', lb: '', contains: '', verdict: '' };

/** Draws the names of fields that the page does not find in the answers. */
const drawMissed = () => missed.size > 0 && h('p', { class: 'loud' }, `The responses lack fields that this page looks for: ${[...missed].sort().join(', ')}. What depends on them is not shown. Reload the page.`);

/** Returns everything that blocks writes or will block them, the worst first (docs/admin-api.md, "Nothing is written"). */
function troubles(said) {
  const found = { bad: [], wait: [] };
  const bad = (...text) => found.bad.push(text);
  const wait = (...text) => found.wait.push(text);
  const strong = (text) => h('strong', null, text);
  ofRole(said, bad, wait, strong);
  ofPauses(said, bad, wait, strong);
  ofGuards(said, bad, wait, strong);
  ofAzure(said, bad, wait, strong);
  ofNodes(said, bad, wait, strong);
  ofControlPlanes(said, bad, wait, strong);
  if (said.notManageableServices > 0) bad(strong(`${count(said.notManageableServices, 'Service')} with a pool that the controller may not write. `), showServices('not_manageable'));
  for (const [state, how] of [['quarantined', bad], ['failed', bad], ['parked', wait]]) {
    const number = said.pools?.byState?.[state] ?? 0;
    if (number) how(strong(`${count(number, 'pool')} ${state}: `), meaning('state', state), '. ', show(state));
  }
  return found;
}
const showServices = (verdict) => h('button', { class: 'link', type: 'button', onclick: () => turn({ ...NO_FILTER, view: 'services', verdict }) }, 'Show');
const show = (state) => h('button', { class: 'link', type: 'button', onclick: () => turn({ ...NO_FILTER, view: 'pools', state }) }, 'Show');

function ofRole({ leadership, synced, sources }, bad, wait, strong) {
  if (!leadership) wait(strong('The leader is not known yet.'));
  else {
    const { role, holder, identity, lastError } = leadership;
    const silent = !['leader', 'alone'].includes(role);
    const leads = silent && holder !== identity ? (holder ? ` ${holder} leads; ask that one.` : ' No leader is known.') : '';
    if (silent) wait(strong(`This replica writes nothing: ${role}. `), `It ${meaning('role', role)}.${leads}`);
    if (role === 'alone') wait(strong('Dry run: '), 'the controller writes nothing.');
    if (lastError) bad(strong('The Lease of this controller: '), lastError);
  }
  if (!synced?.lists) wait(strong('Not synced: '), 'the first complete lists of Services, EndpointSlices and Nodes have not arrived.');
  if (!synced?.discovery) wait(strong('Not synced: '), 'no load balancer has been read yet.');
  for (const { kind, lastError, heardSeconds } of each(sources)) if (lastError) wait(strong(`Source ${kind}: `), `${lastError} (${heardSeconds === null ? 'nothing received yet' : `last heard ${span(heardSeconds)} ago`})`);
}

function ofPauses({ mode, pauses }, bad, wait, strong) {
  if (mode === 'observe') wait(strong('Mode observe: '), 'nothing is written.');
  if (mode === 'add-only') wait(strong('Mode add-only: '), 'members are added and none is removed.');
  if (!pauses) return;
  if (pauses.leaderWaits) bad(strong('The leader waits: '), 'nothing is written until the ConfigMap with the pauses can be read.');
  if (pauses.lastError) bad(strong('Pauses: '), pauses.lastError);
  for (const { key, why, remedy } of each(pauses.unreadable)) bad(strong(`Pause ${key} cannot be read: `), `${why}; ${remedy}`);
  const told = ({ by, since, ageSeconds, reason }) =>
    `by ${by ?? 'an unknown user'}${since ? ` since ${clock(since)} (${span(ageSeconds)})` : ''}${reason ? `: ${reason}` : ''}`;
  for (const pause of each(pauses.items)) {
    if (pause.scope === 'everything') bad(strong('Everything is paused '), told(pause), resumeOf(everything, 'everything'));
    else wait(strong(`Paused: ${pause.scope === 'service' ? 'Service' : pause.scope} `), h('span', { class: 'name' }, pause.target), ` ${told(pause)}`, resumeOf(scopeOf(pause), pause.target));
  }
}

/** Returns the scope of a pause as the body of a request. */
function scopeOf({ scope, target }) {
  const [first, second] = halves(target ?? '');
  return scope === 'pool' ? { scope, loadBalancer: first, backendPool: second } : { scope, namespace: first, name: second };
}

function ofGuards({ guards, held }, bad, wait, strong) {
  const stopped = guards?.removalsStopped;
  if (stopped) bad(strong('All removals are stopped'), ` for ${span(stopped.seconds)}: ${stopped.pools} of ${stopped.of} pools would lose most of their members. `, lookAtHeld(), releaseAll());
  if (guards && guards.mode !== 'enforce') wait(strong(`guards.mode ${guards.mode}: `), 'guards hold no removal back.');
  if (guards?.secondReadSeconds > 60) wait(strong('A second read'), ` has been running for ${span(guards.secondReadSeconds)}; removals in doubt are held until it ends.`);
  if (each(held).length && !stopped) wait(strong(`${count(held.length, 'pool')} with a held removal. `), lookAtHeld());
}
const lookAtHeld = () => h('button', { class: 'link', type: 'button', onclick: () => turn({ ...NO_FILTER, view: 'held' }) }, 'Show');

function ofNodes({ adminState }, bad, wait, strong) {
  if (!adminState) return;
  const { held, refused, unreadable, foreign, switchedOff, lastError } = adminState;
  if (held) bad(strong(`${count(held, 'node')} held back: `), 'they leave service and still get connections, because as many Ready nodes as allowed are Down already. ', lookAtNodes('held'));
  if (refused) bad(strong(`${count(refused, 'node')} cannot be recorded: `), 'they leave service and still get connections, because the ConfigMap takes no record of them. ', lookAtNodes('recording'));
  for (const { key, why, remedy } of each(unreadable)) bad(strong(`Record ${key} cannot be read: `), `${why}; ${remedy}`);
  if (lastError) wait(strong('Records of nodes: '), lastError);
  if (switchedOff) wait(strong('Admin states are switched off'), ' by a key of the ConfigMap: nodes that leave service still get connections.');
  const [first] = each(foreign);
  if (first) wait(strong('Admin states set by another writer: '), `${first.adminState} of ${first.node ?? first.backend} in `, h('span', { class: 'name' }, `${first.loadBalancer}/${first.backendPool}`), foreign.length > 1 ? ` and ${foreign.length - 1} more` : '', '. The controller does not change them.');
}
const lookAtNodes = (state) => h('button', { class: 'link', type: 'button', onclick: () => turn({ ...NO_FILTER, view: 'nodes', state }) }, 'Show');

function ofControlPlanes({ controlPlanes }, bad, wait, strong) {
  if (!controlPlanes) return;
  const { sources, wrong, worst, notManageable } = controlPlanes;
  if (worst) (worst.assigned === 'usable' ? wait : bad)(strong(`${wrong} of ${count(sources, 'source')} of control planes ${wrong === 1 ? 'reports' : 'report'} an error: `), h('span', { class: 'name' }, worst.source), ` (${meaning('assigned', worst.assigned)}): ${worst.message} `, lookAtPlanes());
  if (notManageable) wait(strong(`${count(notManageable, 'pool')} of control planes cannot be written. `), lookAtPlanes());
}
const lookAtPlanes = () => h('button', { class: 'link', type: 'button', onclick: () => turn({ ...NO_FILTER, view: 'planes' }) }, 'Show');

/** Returns the number of nodes that leave service or come back. */
function nodesAtWork(said) {
  const { held, recording, draining, down, restoring, gone } = said?.adminState ?? {};
  return [held, recording, draining, down, restoring, gone].reduce((sum, number) => sum + (number ?? 0), 0);
}

function ofAzure({ sharedLease, lanes, gates, loadBalancers }, bad, wait, strong) {
  if (sharedLease) {
    const { state, holder, holderKind, wantedSeconds, lastError, endsInSeconds } = sharedLease;
    const ends = endsInSeconds === null ? '' : `, ${span(endsInSeconds)} more at most`;
    if (state === 'waiting') (wantedSeconds > 120 ? bad : wait)(strong('The shared Lease '), `is held by ${holder ?? '?'} (${holderKind?.replaceAll('_', ' ')}); a write waits for ${span(wantedSeconds)}${ends}.`);
    if (lastError) bad(strong('The shared Lease: '), lastError);
  }
  for (const { loadBalancer, blockedBy, blockedForSeconds, fault } of each(lanes)) {
    if (fault) bad(strong('Writes are blocked on '), h('span', { class: 'name' }, loadBalancer), `: ${fault}`);
    else if (blockedForSeconds) wait(strong('Lane closed on '), h('span', { class: 'name' }, loadBalancer), ` for ${span(blockedForSeconds)}: ${meaning('blockedBy', blockedBy)}.`);
  }
  for (const gate of each(gates)) if (gate.blockedBy === 'throttled') bad(strong(`Azure throttles ${gate.class}`), ` for ${span(gate.blockedForSeconds)}.`, openGate(gate.class));
  for (const { name, lastError } of each(loadBalancers)) if (lastError) wait(strong('Load balancer '), h('span', { class: 'name' }, name), `: ${lastError}`);
}

function drawAttention() {
  if (!status.value) return [];
  const { bad, wait } = troubles(status.value);
  const line = (colour) => (text) => h('li', { class: colour }, h('div', null, text));
  return [h('ul', null, bad.map(line('bad')), wait.map(line('wait')))];
}

const card = (title, value, ...more) => h('div', { class: 'card' }, h('h3', null, title), h('div', { class: 'value' }, value), more);

function drawNumbers() {
  const said = status.value;
  if (!said) return [];
  const { pools, services, controlPlanes, sharedLease } = said;
  const [gates, lanes] = [each(said.gates), each(said.lanes)];
  const planes = controlPlanes ? ` and ${count(controlPlanes.sources, 'source')}` : '';
  const states = Object.entries(pools?.byState ?? {}).filter(([, number]) => number > 0).map(([state, number]) => {
    const [colour] = WORDS.state[state] ?? [''];
    return h('button', { key: state, class: `plain ${colour}`, type: 'button', title: meaning('state', state), onclick: () => turn({ ...NO_FILTER, view: 'pools', state }) }, `${number} ${state}`);
  });
  // A pool with a held removal also counts in its state.
  const held = each(said.held).length;
  if (held > 0) states.push(h('button', { key: 'held', class: 'plain wait', type: 'button', onclick: () => turn({ ...NO_FILTER, view: 'held' }) }, `${held} held`));
  const busy = lanes.filter(({ writing }) => writing).length;
  const waiting = lanes.reduce((sum, lane) => sum + each(lane.waiting).length, 0);
  return [
    h('div', { class: 'card wide' }, h('h3', null, `${count(pools?.total ?? null, 'pool')} of ${count(services, 'Service')}${planes}`), h('div', { class: 'value states' }, states.length ? states : 'none')),
    card('Lanes', `${busy} of ${lanes.length} busy`, h('div', { class: 'faint' }, `${count(waiting, 'pool')} waiting`)),
    gates.map((gate) => card(`Budget left, ${gate.class}`, `${Math.floor(gate.budgetLeft)} of ${Math.floor(gate.budget)}`,
      h('meter', { min: 0, max: gate.budget, low: gate.budget / 4, optimum: gate.budget, value: gate.budgetLeft, 'aria-label': `budget left for ${gate.class}` }))),
    drawLease(sharedLease),
    nodesAtWork(said) > 0 && card('Nodes that leave service', nodesAtWork(said), h('div', { class: 'faint' }, `${said.adminState.down} Down in every pool`)),
  ].filter(Boolean);
}

function drawLease(lease) {
  if (!lease) return card('Shared Lease', 'not used');
  const held = lease.holder ? `${lease.holder} (${lease.holderKind?.replaceAll('_', ' ')}) for ${span(lease.holderSeconds)}` : 'no holder';
  return card('Shared Lease', `${lease.state} for ${span(lease.stateSeconds)}`, h('div', { class: 'faint' }, held));
}

/** Draws an alarm while anything shown is too old. The announced text changes only when the alarm begins or ends. */
function drawAlarm() {
  const late = [status, list, one].filter((part) => shownPart(part) && part.old());
  const dead = late.includes(status) || late.includes(list);
  document.body.classList.toggle('old', dead || !status.value);
  element('one').classList.toggle('stale', late.includes(one));
  document.title = `${late.length ? '⚠ old: ' : ''}${status.value?.leadership?.role ?? 'admin'} – azure-backend-pool-controller`;
  if (!late.length) return ofVersions();
  const error = late.find((part) => part.error !== null)?.error;
  const confirmed = late.map((part) => part.at).filter((at) => at !== null);
  const as = confirmed.length ? `What is dimmed is as of ${new Date(Math.min(...confirmed)).toLocaleTimeString()}` : 'There is nothing to show';
  const ago = confirmed.length ? `, ${span((Date.now() - Math.min(...confirmed)) / 1000)} ago` : '';
  return [h('p', { class: 'loud' }, `The controller does not respond as expected. ${as}`, h('span', { 'aria-hidden': 'true' }, `${ago}${error ? ` (${error})` : ''}`))];
}

function ofVersions() {
  const mine = document.documentElement.dataset.version;
  const theirs = status.value?.version ?? mine;
  return mine === theirs ? [] : [h('p', { class: 'loud' }, `This page has version ${mine}, and the controller has ${theirs}: reload the page.`)];
}

const shownPart = (part) => part === status || (part === list ? look.view !== 'sources' : look.open !== '');
