import { once } from '../../../src/once'
import type { Action, RawClient, Writer } from '../action'
import { StressRun } from '../entities'

/** Few at a time, and new ones as time goes by, for one that is answered is a race no more. */
const TOKENS = 3
const TOKEN_MILLISECONDS = 200

class WorkFailed extends Error {}

/** Work that says in a table that it ran, and fails now and then after it has. */
async function runOnce(writer: Writer, token: string): Promise<void> {
  const { manager, random, journal } = writer
  const fails = random.chance(0.3)
  const { answer, replayed } = await once(manager, token, async (own) => {
    const { identifiers } = await own.insert(StressRun, { token, client: writer.client })
    if (fails) throw new WorkFailed()
    return { id: Number(identifiers[0]?.['id']), client: writer.client }
  })
  journal.add(replayed ? 'answers of once replayed' : 'work run by once')
  if (!replayed && answer.client !== writer.client) journal.violate(`client ${writer.client} got an answer as its own`)
}

/** Every token has the one run that its answer names, and every run has its token. */
export async function onceViolations(raw: RawClient): Promise<string[]> {
  const { rows } = await raw.query<{ token: string; runs: number; answered: boolean }>(
    `SELECT token, count(run.id)::int AS runs, bool_and(answered_at IS NOT NULL) AS answered
       FROM once_tokens AS t FULL JOIN "stress run" AS run USING (token)
      GROUP BY token
     HAVING count(run.id) <> 1 OR count(t.id) <> 1 OR bool_or((t.answer->>'id')::int IS DISTINCT FROM run.id)`,
  )
  return rows.map(({ token, runs, answered }) => `"${token}" has ${runs} runs, answered: ${answered}`)
}

export const onceActions: readonly Action[] = [
  {
    name: 'once',
    weight: 6,
    run: async (writer) => {
      const { random, journal } = writer
      const token = `token ${random.int(TOKENS)} of ${Math.floor(journal.elapsed / TOKEN_MILLISECONDS)}`
      try {
        await runOnce(writer, token)
      } catch (error) {
        if (!(error instanceof WorkFailed)) throw error
        journal.add('work of once that failed')
      }
    },
  },
]
