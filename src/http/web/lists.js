// The lists, and the one pool or Service that is opened.

function drawViews() {
  const numbers = { held: status.value?.held.length, nodes: nodesAtWork(status.value), planes: status.value?.controlPlanes?.wrong };
  // Most clusters have no node that leaves service, most of the time, and no control plane.
  const needed = { nodes: numbers.nodes > 0, planes: Boolean(status.value?.controlPlanes) };
  const isShown = ([view]) => look.view === view || (needed[view] ?? true);
  return Object.entries(VIEWS).filter(isShown).map(([view, title]) =>
    h('button', { key: view, type: 'button', 'aria-current': look.view === view ? 'page' : null, onclick: () => turn({ view }) }, title, numbers[view] ? ` (${numbers[view]})` : null));
}

function table(caption, heads, rows) {
  const head = (text) => h('th', { scope: 'col', class: text.startsWith('#') ? 'number' : null }, text.replace('#', ''));
  // Who has no mouse scrolls a wide table with the arrow keys.
  return h('div', { class: 'scroll', key: heads.join(), tabindex: 0, role: 'region', 'aria-label': caption }, h('table', null, h('caption', null, caption), h('thead', null, h('tr', null, heads.map(head))), h('tbody', null, rows)));
}
const row = (key, isOpen, ...cells) => h('tr', { key, 'aria-selected': isOpen ? 'true' : null }, cells.map((cell) => (cell?.tag === 'td' ? cell : h('td', null, cell))));
const number = (value) => h('td', { class: 'number' }, value);
const words = (...value) => h('td', { class: 'words' }, value);

const LISTS = {
  pools: ['State', 'Pool', 'Why', '#Observed', '#Required', '#For', '#Out of sync', 'Services or source'],
  held: ['Reason', 'Pool', 'Services or source', '#For', 'Waits for', 'Members that stay'],
  services: ['Verdict', 'Service', 'Pools', '#Endpoints', '#Slices'],
  planes: ['State', 'Resource', 'Kind', 'Version', 'Since', 'Endpoints', 'What is wrong'],
  nodes: ['State', 'Node', 'Reasons', '#So for', '#Pools', '#Down', '#Waiting', '#Failed', 'Why not', 'Ready', 'Entries'],
};

/** What fills a pool: its Services, or a source of a control plane. */
const filledBy = ({ services, source }) => (source === 'kubernetes' ? joined(services) : source);

const poolName = (item) => `${item.loadBalancer}/${item.backendPool}`;

/** A pool's state; beside a removal that is held back it is none to be pleased with. */
const stateOf = ({ state, held }) => (held ? [h('span', { class: 'tag', title: meaning('state', state) }, state), ' ', h('span', { class: 'tag wait', title: meaning('reason', held.reason) }, 'held')] : word('state', state));

const ROWS = {
  pools: (item) => {
    const name = poolName(item);
    const next = item.nextInSeconds ? `may go on in ${span(item.nextInSeconds)}` : '';
    const why = [item.provisioningFailed && 'Azure reports that its last operation failed', item.held && `a removal is held back (${item.held.reason})`, item.wouldHold && `guards would hold a removal (${item.wouldHold.reason})`, item.lastError, next];
    return row(name, look.open === `pool:${name}`, stateOf(item), opener('pool', name), words(why.filter(Boolean).join('; ')), number(some(item.observed)),
      number(item.required), number(span(item.stateSeconds)), number(item.outOfSyncSeconds === null ? '–' : span(item.outOfSyncSeconds)), h('span', { class: 'name' }, filledBy(item)));
  },
  held: (item) => {
    const name = poolName(item);
    const held = item.held ?? item.wouldHold;
    return row(name, look.open === `pool:${name}`, [word('reason', held.reason), item.held ? null : ' would be held'], opener('pool', name), filledBy(item),
      number(span(held.seconds)), words(ends(held)), joined(held.members));
  },
  services: (item) => {
    const name = `${item.namespace}/${item.name}`;
    const right = item.verdict.startsWith('right');
    return row(name, look.open === `service:${name}`, h('td', { class: right ? 'words good' : 'words' }, item.verdict), opener('service', name), h('span', { class: 'name' }, joined(item.pools)),
      number(item.endpoints), number(item.endpointSlices));
  },
  planes: ({ type, name, state, version, updatedAt, edsName, addresses, error }) => {
    const kind = type.slice(type.lastIndexOf('.') + 1);
    const { healthy, degraded, draining, out } = addresses ?? {};
    const told = addresses && [[healthy, 'healthy'], [degraded, 'degraded'], [draining, 'draining'], [out, 'out']].filter(([number]) => number > 0).map(([number, how]) => `${number} ${how}`);
    return row(`${type}/${name}`, false, word('resourceState', state), h('span', { class: 'name' }, name), kind, version ?? '–', updatedAt ?? '–',
      told ? joined(told) : edsName ?? '–', words(error?.message ?? ''));
  },
  nodes: ({ name, state, reasons, signalSeconds, ready, addresses, instance, retries, nextInSeconds, lastError, pools }) => {
    const next = nextInSeconds ? `tried again in ${span(nextInSeconds)}` : '';
    const left = [pools.foreign && `${count(pools.foreign, 'pool')} set Down by somebody else`, pools.unknown && `${count(pools.unknown, 'pool')} with an admin state that is not known`, pools.excluded && `${count(pools.excluded, 'pool')} left out`];
    const why = [lastError, retries ? `failed ${count(retries, 'time')}` : '', next, ...left];
    return row(name, false, word('nodeState', state), h('span', { class: 'name' }, name), joined(reasons), number(span(signalSeconds)), number(pools.total), number(pools.down),
      number(pools.waiting), number(pools.failed), words(why.filter(Boolean).join('; ')), ready ? 'yes' : 'no', joined([...addresses, ...(instance ? [instance] : [])]));
  },
};

const ends = (held) => `${meaning('waitsFor', held.waitsFor) || held.waitsFor}${held.endsInSeconds === null ? '' : `, in ${span(held.endsInSeconds)}`}`;

function drawList() {
  if (look.view === 'sources') return status.value ? drawSources(status.value) : [];
  if (list.problem) return [h('p', { class: 'bad' }, list.problem)];
  if (!list.value) return [h('p', { class: 'faint' }, 'reading …')];
  const { items, next } = list.value;
  const filtered = API[look.view].parameters.some((key) => look[key]);
  const caption = `${VIEWS[look.view]}, page ${pages.length}: ${items.length} ${next || pages.length > 1 ? 'of more' : filtered ? 'that fit the filter' : 'in all'}`;
  return [
    look.view === 'planes' && drawPlanes(list.value),
    look.view === 'held' && (items.length > 0) && drawRelease(status.value),
    look.view === 'nodes' && drawNodeRelease(items.find(({ state }) => state === 'held')),
    items.length ? table(caption, LISTS[look.view], items.map(ROWS[look.view])) : h('p', null, look.view === 'held' ? 'No removal is held back.' : 'There is none like that.'),
    h('div', { class: 'pager', key: 'pager', hidden: !next && pages.length === 1 },
      h('button', { type: 'button', disabled: pages.length === 1, onclick: () => page(null, true) }, 'Previous page'),
      h('span', { class: 'faint' }, `page ${pages.length}`),
      h('button', { type: 'button', disabled: !next, onclick: () => page(next) }, 'Next page')),
  ].filter(Boolean);
}

/** The servers, and what follows for the pools; the resources themselves are below. */
function drawPlanes({ servers, sources }) {
  const server = ({ uri, used, connected, failure, cut }) =>
    row(uri, false, h('span', { class: 'name' }, uri), h('span', { class: connected ? 'good' : used ? 'bad' : '' }, connected ? 'connected' : used ? 'not connected' : 'not used'), words(failure ?? cut ?? ''));
  const pool = ({ loadBalancer, backendPool, state, notManageable }) => h('div', null, state ? opener('pool', `${loadBalancer}/${backendPool}`) : h('span', { class: 'name' }, `${loadBalancer}/${backendPool}`), ` ${notManageable ? `is not written: ${notManageable.detail}` : state ?? 'is left as it is'}`);
  const source = ({ source, assigned, error, ambientErrors, pools }) =>
    row(source, false, word('assigned', assigned), h('span', { class: 'name' }, source), words([error, ...ambientErrors].filter(Boolean).map(({ message }) => h('div', null, message))), pools.map(pool));
  return h('div', { key: 'planes' },
    table('Servers', ['Server', 'State', 'Why not'], servers.map(server)),
    table('Sources', ['Assigned', 'Source', 'What is wrong', 'Pools'], sources.map(source)));
}

function drawSources({ loadBalancers, lanes, sources, leadership }) {
  const lane = (name) => lanes.find(({ loadBalancer }) => loadBalancer.toLowerCase() === name.toLowerCase());
  const writes = ({ writing }) => (writing ? `${writing.pool}: ${writing.phase} for ${span(writing.seconds)}` : '–');
  const balancer = ({ name, exists, readSeconds, pools, lastError }) => {
    const its = lane(name);
    const shut = its?.blockedBy ? `blocked by ${its.blockedBy}` : its?.closedForSeconds ? `closed for ${span(its.closedForSeconds)}` : '';
    const longest = its?.waiting.length ? `${its.waiting.length}, ${its.waiting[0].pool} for ${span(its.waiting[0].seconds)}` : '0';
    return row(name, false, h('span', { class: 'name' }, name), exists === null ? 'not known yet' : exists ? 'there' : 'does not exist', number(pools), number(span(readSeconds)),
      words(its ? writes(its) : '–'), its ? longest : '–', words([shut, lastError].filter(Boolean).join('; ')));
  };
  const source = ({ kind, phase, synced, objects, heardSeconds, lastError }) =>
    row(kind, false, kind, phase, synced ? 'yes' : 'no', number(objects), number(span(heardSeconds)), words(lastError ?? ''));
  const certain = leadership && leadership.certainForSeconds !== null ? `, certain for ${span(leadership.certainForSeconds)} more` : '';
  return [
    table('Load balancers and their lanes', ['Load balancer', 'Exists', '#Pools', '#Read before', 'Writing', 'Waiting', 'Why not'], loadBalancers.map(balancer)),
    h('p', { class: 'faint' }, leadership ? `Leadership: ${leadership.holder ?? 'nobody'} holds our own Lease${certain}.` : ''),
    table('Sources', ['Kind', 'Phase', 'Synced', '#Objects', '#Heard before', 'Last error'], sources.map(source)),
  ];
}

// ---- the one that is opened ----

/** Text as one argument of a shell: foreign names must not become a command. */
const quoted = (text) => `'${text.replaceAll("'", "'\\''")}'`;

function command(body) {
  const text = `token=$(kubectl create token operator --namespace kube-system)\ncurl --header "Authorization: Bearer $token" --data ${quoted(JSON.stringify(body))} ${quoted(new URL('api/v1/held/release', location.href).href)}`;
  const copy = (event) => {
    const button = event.currentTarget;
    navigator.clipboard.writeText(text).then(() => { button.title = 'copied'; button.classList.add('good'); }, () => { button.title = 'copy it by hand'; });
  };
  return [h('pre', null, text), h('button', { type: 'button', onclick: copy }, 'Copy')];
}

function drawRelease(said) {
  if (said?.guards?.removalsStopped) {
    return h('details', { key: 'release' }, h('summary', null, 'All removals are stopped: how a person lets them go'), h('p', null, 'Only where the cluster really is as these lists say. Nothing less than everything ends it; ask the leader:'), command({ scope: 'everything' }));
  }
  return h('details', { key: 'release' }, h('summary', null, 'How a person lets all of them go'), h('p', null, 'Open a pool for the command of that one alone. For all of them, ask the leader:'), command({ scope: 'everything' }));
}

function drawNodeRelease(held) {
  return held && h('details', { key: 'release' }, h('summary', null, 'How a person lets a node go that waits'), h('p', null, 'Only where so many nodes are meant to leave service. For the first of them, ask the leader:'), command({ scope: 'node', name: held.name }));
}

function drawHeld(pool) {
  const held = pool.held ?? pool.wouldHold;
  if (!held) return [];
  const told = `${pool.held ? 'Held back' : 'Would be held back'} for ${span(held.seconds)}: ${meaning('reason', held.reason) || held.reason}. Waits for: ${ends(held)}.`;
  const way = () => {
    if (!pool.held) return h('p', { class: 'faint' }, 'guards.mode is observe: the removal goes on.');
    if (held.reason === 'add_only') return h('p', { class: 'faint' }, 'A release does not change the mode: set mode in the configuration.');
    if (status.value?.guards?.removalsStopped) return [h('p', null, 'All removals are stopped; a release of everything alone ends that:'), command({ scope: 'everything' })];
    return [h('p', null, 'To let it go, where that is right, ask the leader:'), command({ scope: 'pool', loadBalancer: pool.loadBalancer, backendPool: pool.backendPool })];
  };
  return [h('h3', null, 'Held removal'), h('p', null, word('reason', held.reason), ` ${told}`), h('p', null, `Members that stay: ${joined(held.members)}`), way()];
}

const facts = (pairs) => h('dl', null, pairs.filter(([, value]) => value !== null && value !== undefined).map(([name, value]) => [h('dt', null, name), h('dd', null, value)]));

/** Each address of a pool once, what is wrong first. */
function members({ required, tolerated, observed, adminStates, missing, mustGo }, held) {
  const named = new Map(required.map((member) => [member.ip, member]));
  const all = [...new Set([...(missing ?? []), ...(mustGo ?? []), ...named.keys(), ...tolerated, ...(observed ?? [])])];
  const has = (names) => new Set(names ?? []);
  const [lacks, goes, may, seen, kept] = [missing, mustGo, tolerated, observed, held].map(has);
  return all.map((ip) => {
    const how = lacks.has(ip) ? ['bad', 'missing: must be in'] : goes.has(ip) ? ['wait', 'in the pool, must go']
      : kept.has(ip) ? ['wait', 'in the pool, its removal is held'] : named.has(ip) ? (observed ? ['good', 'in the pool, required'] : ['', 'required; not seen yet'])
        : may.has(ip) ? ['', seen.has(ip) ? 'in the pool, tolerated' : 'tolerated, not in the pool'] : ['', 'in the pool'];
    const member = named.get(ip);
    const state = adminStates?.[ip] ?? '–';
    return row(ip, false, h('span', { class: how[0] }, how[1]), h('span', { class: 'name' }, ip), member ? member.name : '–', member ? (member.nodeReady ? 'ready' : 'not ready') : '–',
      h('span', { class: state === 'Down' ? 'wait' : '' }, state));
  });
}

function drawPool({ pool, verdicts }) {
  const retries = Object.entries(pool.retries ?? {}).map(([uid, counts]) => `${uid}: ${[counts].flat().join(', ')}`);
  const paused = pool.pausedBy.map(({ scope, target }) => (target ? `${scope} ${target}` : scope));
  const would = pool.wouldChange && `add ${joined(pool.wouldChange.add)}; remove ${joined(pool.wouldChange.remove)}`;
  const last = pool.lastAttempt && `${pool.lastAttempt.outcome}${pool.lastAttempt.at ? ` at ${pool.lastAttempt.at}` : ''}`;
  const { required, tolerated, observed } = pool.members;
  return [
    h('p', null, word('state', pool.state, ` for ${span(pool.stateSeconds)}`), ` ${meaning('state', pool.state)}${pool.held ? ', but for the removal that is held back' : ''}`),
    verdicts.map(([key, verdict]) => h('p', { key }, opener('service', key), `: ${verdict}`)),
    pool.services.length > verdicts.length && h('p', null, `and ${pool.services.length - verdicts.length} more: ${joined(pool.services.slice(verdicts.length))}`),
    facts([
      ['Last error', pool.lastError], ['Paused by', paused.length ? paused.join(', ') : null],
      ['Members', `${some(observed && observed.length)} observed, ${required.length} required, ${tolerated.length} tolerated, ${pool.held ? pool.held.members.length : 0} held`],
      ['Out of sync', pool.outOfSyncSeconds === null ? null : `for ${pool.outOfSyncAtLeast ? 'at least ' : ''}${span(pool.outOfSyncSeconds)}, since ${pool.outOfSyncSince}`],
      ['Would change', would], ['Oldest change waits', pool.waitingSeconds === null ? null : span(pool.waitingSeconds)],
      ['May go on in', pool.nextInSeconds === null ? null : span(pool.nextInSeconds)], ['Attempt under way', pool.attempt], ['Last attempt', last],
      ['Retries by Service', retries.length ? retries.join('; ') : null], ['Lost writes', pool.lostWrites || null], ['Observed at', pool.observedAt ?? 'not yet'],
      ['Filled from', pool.source === 'kubernetes' ? null : pool.source], ['Its control plane', pool.note],
      ['Remarks', pool.remarks?.length ? pool.remarks.map(({ detail }) => h('div', null, detail)) : null],
      ['Known from', `${pool.provenance}, ${pool.family}`],
    ]),
    drawHeld(pool),
    h('h3', null, 'Members'),
    table('Each address once, what is wrong first', ['How', 'Address', 'Node', 'Node is', 'Admin state'], members(pool.members, (pool.held ?? {}).members)),
  ];
}

function drawService({ verdict, service }) {
  const lines = (all) => (all.length ? all.map((text) => h('div', null, text)) : null);
  const refused = new Set(service.notManageable.map(({ pool }) => pool));
  return [
    h('p', null, h('strong', null, verdict)),
    facts([
      ['Pools', service.pools.length ? service.pools.map((pool) => h('div', null, refused.has(pool) ? pool : opener('pool', pool))) : 'none'],
      ['Not written', lines(service.notManageable.map(({ pool, reason, detail }) => `${pool}: ${detail} (${reason})`))],
      ['Data errors', lines(service.dataErrors)], ['Candidacy', service.candidacy.replaceAll('_', ' ')],
      ['Paused', service.paused ? 'yes' : null], ['EndpointSlices', service.endpointSlices], ['Endpoints', service.endpoints], ['UID', service.uid],
    ]),
  ];
}

function drawOne() {
  const [kind, first, second] = opened();
  const title = `${kind === 'pool' ? 'Pool' : 'Service'} ${first}/${second}`;
  const said = one.problem ? [h('p', { class: 'bad' }, one.problem)] : !one.value ? [h('p', { class: 'faint' }, 'reading …')]
    : kind === 'pool' ? drawPool(one.value) : drawService(one.value);
  return [h('div', { class: 'top' }, h('h2', null, title), h('button', { type: 'button', onclick: close }, 'Close')), h('div', { key: look.open }, said)];
}

function close() {
  turn({ open: '' }, false);
  if (returnTo?.isConnected) returnTo.focus();
  else element('list').focus({ preventScroll: true });
}
