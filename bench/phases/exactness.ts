import { STEVENS } from '../../test/support/md5-collisions'
import { Checker, type Outcome } from '../faults'
import { type Bench, callers, peersWith } from '../measure'
import type { Peer } from '../peer'
import type { Facts, Phase } from '../phase'
import { longText } from './long-texts'

type Asking = Peer & Required<Pick<Peer, 'findOrCreate'>>

const LONG_CHARACTERS = 4_000
const CALLERS = 32

const racesOf = ({ settings }: Bench): number => Math.ceil(settings.calls / CALLERS)

/** What each makes of the texts that are hard. */
export const exactness: Phase = {
  name: 'exactness',
  run: async (bench) => {
    const rows: Facts['rows'][number][] = []
    for (const peer of peersWith(bench, 'findOrCreate')) {
      bench.say(`exactness: ${peer.name} …`)
      rows.push({
        name: peer.name,
        values: [await pair(bench, peer), await long(bench, peer), ...(await race(bench, peer))],
      })
    }
    return [
      {
        kind: 'facts',
        phase: 'exactness',
        title: 'exactness',
        columns: [
          'two texts of one MD5',
          'text of 4,000 characters',
          `errors in ${racesOf(bench)} races of ${CALLERS}`,
          'wrong flags',
          'second ids or wrong rows',
        ],
        rows,
      },
    ]
  },
}

/** Each twice, so that what is found is seen too. */
async function pair(bench: Bench, peer: Asking): Promise<string> {
  const { collision = STEVENS } = peer
  if (collision === null) return 'none is known'
  const expected = [...collision, ...collision].map((text, at) => ({ text, created: at < 2 }))
  return await verdict(bench, peer, expected, 'two rows')
}

async function long(bench: Bench, peer: Asking): Promise<string> {
  const text = longText(bench, LONG_CHARACTERS)
  return await verdict(
    bench,
    peer,
    [
      { text, created: true },
      { text, created: false },
    ],
    'stored',
  )
}

async function verdict(
  bench: Bench,
  peer: Asking,
  expected: readonly { text: string; created: boolean }[],
  right: string,
): Promise<string> {
  const checker = new Checker(peer)
  checker.check(
    expected,
    await callers(
      1,
      expected.map(({ text }) => text),
      peer.findOrCreate,
    ),
  )
  const { errors, wrongRow, wrongFlag, secondId, firstError } = await checker.finish(bench.server.admin)
  if (errors > 0) return `error: ${firstError ?? ''}`
  if (wrongRow + secondId > 0) return 'the row of the other text'
  return wrongFlag > 0 ? 'wrong flag' : right
}

async function race(bench: Bench, peer: Asking): Promise<readonly (number | string)[]> {
  const checker = new Checker(peer)
  for (let each = 0; each < racesOf(bench); each += 1) {
    const texts = Array<string>(CALLERS).fill(bench.fresh())
    const outcomes: readonly Outcome[] = await callers(CALLERS, texts, peer.findOrCreate)
    checker.check(
      texts.map((text) => ({ text, created: 'once' })),
      outcomes,
    )
  }
  const { errors, wrongFlag, wrongRow, secondId, noFlag } = await checker.finish(bench.server.admin)
  return [errors, noFlag ? 'none told' : wrongFlag, wrongRow + secondId]
}
