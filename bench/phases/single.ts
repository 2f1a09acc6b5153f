import { type Bench, callers, type Comparison, inTurns, peersWith, withKnown } from '../measure'
import type { Peer } from '../peer'
import type { Phase } from '../phase'

const times = <Value>(size: number, make: (index: number) => Value): Value[] =>
  Array.from({ length: size }, (_, index) => make(index))

/** A text that is there, one call after the other. */
export const hit: Phase = {
  name: 'hit',
  run: async (bench) => [await calls(bench, { phase: 'hit', title: 'hit', newShare: 0, callerCount: 1 })],
}

/** A text that is not there. */
export const miss: Phase = {
  name: 'miss',
  run: async (bench) => [await calls(bench, { phase: 'miss', title: 'miss', newShare: 1, callerCount: 1 })],
}

const MIXED_CALLERS = [1, 8, 32]

/** Of five texts one is new. */
export const mixed: Phase = {
  name: 'mixed',
  run: async (bench) => {
    const comparisons: Comparison[] = []
    for (const callerCount of MIXED_CALLERS) {
      const title = `80 % hits, ${callerCount} caller${callerCount > 1 ? 's' : ''}`
      comparisons.push(await calls(bench, { phase: 'mixed', title, newShare: 1 / 5, callerCount }))
    }
    return comparisons
  },
}

interface Calls {
  readonly phase: string
  readonly title: string
  readonly newShare: number
  readonly callerCount: number
  /** @default those of the bench */
  readonly peers?: readonly Peer[]
}

/** Calls of `findOrCreate`. */
export async function calls(bench: Bench, wanted: Calls): Promise<Comparison> {
  const { phase, title, newShare, callerCount, peers = peersWith(bench, 'findOrCreate') } = wanted
  const known = newShare < 1 ? await withKnown(bench, peers) : () => ''
  const expect = (peer: Peer, index: number): { text: string; created: boolean } => {
    const created = Math.floor((index + 1) * newShare) > Math.floor(index * newShare)
    return { text: created ? bench.fresh() : known(peer), created }
  }
  return await inTurns(bench, {
    phase,
    title,
    peers,
    turn: (peer, size) => {
      const expected = times(size, (index) => expect(peer, index))
      const texts = expected.map(({ text }) => text)
      const { findOrCreate } = peer
      return { expected, run: async () => (findOrCreate ? await callers(callerCount, texts, findOrCreate) : []) }
    },
  })
}

/** A look for a text that is there, which creates nothing. */
export const lookUp: Phase = {
  name: 'look-up',
  run: async (bench) => {
    const peers = peersWith(bench, 'find')
    const known = await withKnown(bench, peers)
    return [
      await inTurns(bench, {
        phase: 'look-up',
        title: 'look-up',
        peers,
        turn: (peer, size) => {
          const texts = times(size, () => known(peer))
          const { find } = peer
          return {
            expected: texts.map((text) => ({ text, created: false })),
            run: async () => (find ? await callers(1, texts, find) : []),
          }
        },
      }),
    ]
  },
}

const HERD_CALLERS = 32

/** All callers ask for one text that is not there. */
export const herd: Phase = {
  name: 'herd',
  run: async (bench) => [
    await inTurns(bench, {
      phase: 'herd',
      title: `${HERD_CALLERS} callers, one new text`,
      peers: peersWith(bench, 'findOrCreate'),
      turn: ({ findOrCreate }, size) => {
        const herds = times(Math.ceil(size / HERD_CALLERS), () => Array<string>(HERD_CALLERS).fill(bench.fresh()))
        return {
          expected: herds.flat().map((text) => ({ text, created: 'once' })),
          run: async () => {
            const outcomes = []
            for (const texts of herds) {
              outcomes.push(...(findOrCreate ? await callers(HERD_CALLERS, texts, findOrCreate) : []))
            }
            return outcomes
          },
        }
      },
    }),
  ],
}

/** BEGIN, a text that is there, COMMIT. */
export const transaction: Phase = {
  name: 'transaction',
  run: async (bench) => {
    const peers = peersWith(bench, 'inTransaction')
    const known = await withKnown(bench, peers)
    const one = async (title: string, isNew: boolean): Promise<Comparison> =>
      await inTurns(bench, {
        phase: 'transaction',
        title,
        peers,
        turn: (peer, size) => {
          const texts = times(size, () => (isNew ? bench.fresh() : known(peer)))
          const { inTransaction } = peer
          return {
            expected: texts.map((text) => ({ text, created: isNew })),
            run: async () => (inTransaction ? await callers(1, texts, inTransaction) : []),
          }
        },
      })
    return [await one('BEGIN, hit, COMMIT', false), await one('BEGIN, miss, COMMIT', true)]
  },
}
