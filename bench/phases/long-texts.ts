import { randomBytes } from 'node:crypto'
import { type Bench, callers, type Comparison, inTurns, peersWith } from '../measure'
import type { Peer } from '../peer'
import type { Phase } from '../phase'

const SIZES: readonly (readonly [name: string, characters: number])[] = [
  ['4 KB', 2 ** 12],
  ['64 KB', 2 ** 16],
  ['1 MB', 2 ** 20],
]

const KNOWN_ROWS = 4

/** A URL that cannot be compressed much. */
export function longText(bench: Bench, characters: number): string {
  const start = `${bench.fresh()}&long=`
  return start + randomBytes(characters).toString('base64url').slice(start.length, characters)
}

/** Texts that no b-tree index can hold. */
export const longTexts: Phase = {
  name: 'long',
  run: async (bench) => {
    const peers = peersWith(bench, 'findOrCreate')
    const comparisons: Comparison[] = []
    for (const [name, characters] of SIZES) comparisons.push(...(await ofLength(bench, peers, name, characters)))
    await bench.server.admin.query(`TRUNCATE ${peers.map(({ table }) => table).join(', ')}`)
    return comparisons
  },
}

async function ofLength(
  bench: Bench,
  peers: readonly Peer[],
  name: string,
  characters: number,
): Promise<readonly Comparison[]> {
  const known = Array.from({ length: KNOWN_ROWS }, () => longText(bench, characters))
  for (const { findOrCreate } of peers) if (findOrCreate) await callers(1, known, findOrCreate)
  const rounds = Math.ceil(bench.settings.rounds / 2)
  const one = async (what: string, isNew: boolean): Promise<Comparison> =>
    await inTurns(bench, {
      phase: 'long',
      title: `${what}, ${name}`,
      peers,
      rounds,
      turn: ({ findOrCreate }, size) => {
        const texts = Array.from({ length: size }, (_, at) =>
          isNew ? longText(bench, characters) : (known[at % KNOWN_ROWS] ?? ''),
        )
        return {
          expected: texts.map((text) => ({ text, created: isNew })),
          run: async () => (findOrCreate ? await callers(1, texts, findOrCreate) : []),
        }
      },
    })
  return [await one('hit', false), await one('miss', true)]
}
