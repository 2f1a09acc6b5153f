import { type Bench, inTurns, type Turn } from '../measure'
import type { Peer } from '../peer'
import type { Phase } from '../phase'

/** Texts in one call, of which every other one is there. */
export const bulk: Phase = {
  name: 'bulk',
  run: async (bench) => {
    const rows = bench.settings.bulkRows
    return [
      await inTurns(bench, {
        phase: 'bulk',
        title: `${rows} texts at once, half of them known`,
        peers: bench.peers.filter(({ findOrCreateMany, store }) => findOrCreateMany ?? store),
        rounds: Math.ceil(bench.settings.rounds / 3),
        turn: async (peer) => await halfKnown(bench, peer, rows),
      }),
    ]
  },
}

async function halfKnown(bench: Bench, peer: Peer, rows: number): Promise<Turn> {
  const { findOrCreateMany, store } = peer
  const texts = Array.from({ length: rows }, bench.fresh)
  await peer.fill(texts.filter((_, at) => at % 2 === 0))
  await bench.server.admin.query('CHECKPOINT')
  if (findOrCreateMany) {
    const expected = texts.map((text, at) => ({ text, created: at % 2 === 1 }))
    return { expected, run: async () => await findOrCreateMany(texts) }
  }
  return {
    expected: [],
    count: rows,
    run: async () => {
      await store?.(texts)
      return []
    },
  }
}

/** Lines of a file, into an empty table, and once more. */
export const importing: Phase = {
  name: 'import',
  run: async (bench) => {
    const { lines, rounds } = bench.settings
    const again = async (peer: Peer): Promise<Turn> => {
      await bench.server.admin.query('CHECKPOINT')
      return {
        expected: [],
        count: lines.length,
        run: async () => {
          await peer.importLines?.(lines)
          return []
        },
      }
    }
    const into = {
      phase: 'import',
      peers: bench.peers.filter(({ importLines }) => importLines),
      rounds: Math.ceil(rounds / 7),
    }
    return [
      await inTurns(bench, {
        ...into,
        title: `import of ${lines.length} URLs, all new`,
        turn: async (peer) => {
          await bench.server.admin.query(`TRUNCATE ${peer.table} RESTART IDENTITY`)
          return await again(peer)
        },
      }),
      await inTurns(bench, { ...into, title: `import of ${lines.length} URLs, all known`, turn: again }),
    ]
  },
}
