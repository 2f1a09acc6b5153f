import { Checker, type Expected, type Faults, type Outcome } from './faults'
import type { Peer, PeerFactory, Place } from './peer'
import { rawOneStatement } from './peers/raw-one-statement'
import { type BenchServer, cpuBetween } from './server'
import { median, milliseconds } from './support'

export interface Settings {
  /** That count. */
  readonly rounds: number
  /** How long a turn of single calls lasts, about. */
  readonly turnMilliseconds: number
  readonly bulkRows: number
  readonly lines: readonly string[]
  readonly memoryLines: number
  /** Where what happens is counted and not timed. */
  readonly calls: number
}

/** What a phase is given. */
export interface Bench {
  readonly server: BenchServer
  readonly settings: Settings
  readonly factories: readonly PeerFactory[]
  readonly peers: readonly Peer[]
  /** A URL that nobody has asked for. */
  readonly fresh: () => string
  /** Says on the terminal what is done. */
  readonly say: (line: string) => void
}

/** One peer's part of a round. */
export interface Turn {
  /** What must come back, in order. */
  readonly expected: readonly Expected[]
  /** What the time is divided by. @default the number of expected answers */
  readonly count?: number
  /** What is timed. An empty list is what learns nothing of the rows. */
  readonly run: () => Promise<readonly Outcome[]>
}

export interface Comparison {
  readonly kind: 'comparison'
  /** The phase's name for `--phases`. */
  readonly phase: string
  /** What is measured, unique in a run. */
  readonly title: string
  /** Of `value`, for each text. */
  readonly unit: 'µs'
  /** The peer that the ratios are to. */
  readonly baseline: string
  readonly rows: readonly Row[]
}

export interface Row {
  readonly peer: string
  /** The median of the rounds; null for a peer that could do none of it. */
  readonly value: number | null
  /** The median of the rounds' own ratios to the baseline. */
  readonly ratio: number | null
  /** Microseconds for each text, of this process. */
  readonly clientCpu: number | null
  /** Microseconds for each text, of the server's processes; null where they cannot be read. */
  readonly serverCpu: number | null
  /** It learns nothing of the rows. */
  readonly noAnswers: boolean
  readonly faults: Faults
}

export interface Measurement {
  readonly phase: string
  readonly title: string
  readonly peers: readonly Peer[]
  /** @default that of the settings */
  readonly rounds?: number
  /**
   * @param size how many operations make a turn of the length that the settings ask for
   */
  readonly turn: (peer: Peer, size: number) => Turn | Promise<Turn>
}

/** What a first call does, and a statement before it has its plan. */
const FIRST_SIZE = 8
/** So many turns long, for the engine compiles what runs often. */
const WARM_UP_TURNS = 4
const MAX_SIZE = 20_000

/** A peer's figures while the rounds go on. */
interface Side {
  readonly peer: Peer
  readonly checker: Checker
  readonly times: number[]
  size: number
  count: number
  clientCpu: number
  serverCpu: number | undefined
  /** Not once did it give an answer. */
  fails: boolean
  noAnswers: boolean
}

/**
 * Takes the peers in turns, in another order each round. A ratio is the median of the rounds' own ratios, so that what
 * slows the machine for a while slows both sides. The first rounds warm up and do not count, but are checked too.
 */
export async function inTurns(bench: Bench, measurement: Measurement): Promise<Comparison> {
  const { phase, title, peers, rounds = bench.settings.rounds } = measurement
  bench.say(`${title} …`)
  const sides = peers.map((peer): Side => {
    const checker = new Checker(peer)
    return {
      peer,
      checker,
      times: [],
      size: FIRST_SIZE,
      count: 0,
      clientCpu: 0,
      serverCpu: 0,
      fails: false,
      noAnswers: false,
    }
  })
  for (const turns of [WARM_UP_TURNS, 1]) {
    for (const side of sides) {
      const perText = await takeTurn(bench.server, side, measurement, false)
      const wanted = Math.round((turns * bench.settings.turnMilliseconds * 1_000) / perText)
      side.size = Math.min(MAX_SIZE, Math.max(1, wanted))
    }
  }
  for (let round = 0; round < rounds; round += 1) {
    const start = round % Math.max(1, sides.length)
    const order = [...sides.slice(start), ...sides.slice(0, start)]
    if (round % 2 === 1) order.reverse()
    for (const side of order.filter(({ fails }) => !fails)) await takeTurn(bench.server, side, measurement, true)
  }
  const baseline = fastest(sides)
  const rows = await Promise.all(
    sides.map(async (side): Promise<Row> => {
      const faults = await side.checker.finish(bench.server.admin)
      return { peer: side.peer.name, ...figures(side, baseline), noAnswers: side.noAnswers, faults }
    }),
  )
  return { kind: 'comparison', phase, title, unit: 'µs', baseline: baseline?.peer.name ?? '', rows }
}

/** Statements that a person wrote for `pg`. */
const isHandWritten = (peer: string): boolean => peer.startsWith('pg:')

/** Of the peers that are hand-written, the one to beat; only where none of them learns of its rows, one that does not. */
function fastest(sides: readonly Side[]): Side | undefined {
  const able = sides.filter(({ peer, fails }) => isHandWritten(peer.name) && !fails)
  const telling = able.filter(({ noAnswers }) => !noAnswers)
  const candidates = telling.length > 0 ? telling : able
  return candidates.toSorted((one, other) => median(one.times) - median(other.times))[0] ?? sides[0]
}

type Figures = Pick<Row, 'value' | 'ratio' | 'clientCpu' | 'serverCpu'>

function figures({ fails, times, count, clientCpu, serverCpu }: Side, baseline: Side | undefined): Figures {
  if (fails) return { value: null, ratio: null, clientCpu: null, serverCpu: null }
  return {
    value: median(times),
    ratio: median(times.map((time, round) => time / (baseline?.times[round] ?? Number.NaN))),
    clientCpu: clientCpu / count,
    serverCpu: serverCpu === undefined ? null : serverCpu / count,
  }
}

/** Microseconds for each text. */
async function takeTurn(server: BenchServer, side: Side, { turn }: Measurement, counts: boolean): Promise<number> {
  const { expected, count = expected.length, run } = await turn(side.peer, side.size)
  const serverBefore = await server.cpu()
  const clientBefore = process.cpuUsage()
  let outcomes: readonly Outcome[] = []
  const time = await milliseconds(async () => {
    outcomes = await run()
  })
  const client = process.cpuUsage(clientBefore)
  const cpu = cpuBetween(serverBefore, await server.cpu())
  side.checker.check(expected, outcomes)
  side.fails = expected.length > 0 && outcomes.every((outcome) => outcome instanceof Error)
  side.noAnswers = expected.length === 0
  const perText = (time * 1_000) / count
  if (!counts) return perText
  side.times.push(perText)
  side.count += count
  side.clientCpu += client.user + client.system
  side.serverCpu = side.serverCpu === undefined || cpu === undefined ? undefined : side.serverCpu + cpu
  return perText
}

/** So many callers at once, each of which takes the next operation when it has its answer. */
export async function callers(
  count: number,
  texts: readonly string[],
  one: (text: string) => Promise<Outcome>,
): Promise<readonly Outcome[]> {
  const outcomes: Outcome[] = []
  let next = 0
  const caller = async (): Promise<void> => {
    for (let at = next++; at < texts.length; at = next++) {
      try {
        outcomes[at] = await one(texts[at] ?? '')
      } catch (error) {
        outcomes[at] = error instanceof Error ? error : new Error(String(error))
      }
    }
  }
  await Promise.all(Array.from({ length: count }, caller))
  return outcomes
}

/** Peers that have an operation, with it. */
export function peersWith<Name extends keyof Peer>(
  { peers }: Bench,
  operation: Name,
): (Peer & Required<Pick<Peer, Name>>)[] {
  return peers.filter((peer): peer is Peer & Required<Pick<Peer, Name>> => peer[operation] !== undefined)
}

/** It runs in every phase that it can, whatever peers are named. */
export const BASELINE = rawOneStatement.name

const KNOWN_ROWS = 2_000

/** Puts texts into the table of each peer; the n-th of each, over and over. */
export async function withKnown(bench: Bench, peers: readonly Peer[]): Promise<(peer: Peer) => string> {
  const known = new Map<Peer, readonly string[]>()
  const next = new Map<Peer, number>()
  for (const peer of peers) {
    const texts = Array.from({ length: KNOWN_ROWS }, bench.fresh)
    await peer.fill(texts)
    known.set(peer, texts)
  }
  await bench.server.admin.query(`VACUUM ANALYZE ${peers.map(({ table }) => table).join(', ')}`)
  return (peer) => {
    const at = next.get(peer) ?? 0
    next.set(peer, at + 1)
    const texts = known.get(peer) ?? []
    return texts[at % texts.length] ?? ''
  }
}

export async function openPeers(factories: readonly PeerFactory[], place: Place): Promise<Peer[]> {
  const peers: Peer[] = []
  for (const factory of factories) peers.push(await factory.open(place))
  return peers
}
