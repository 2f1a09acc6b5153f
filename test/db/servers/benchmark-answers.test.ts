import { expect, test } from 'vitest'
import { Checker, type Outcome } from '../../../bench/faults'
import type { Peer } from '../../../bench/peer'
import { STEVENS } from '../../support/md5-collisions'
import { useDatabase } from '../../support/database'

const database = useDatabase()

/** Of a table with these texts, in the order of their ids. */
async function checkerOf(
  table: string,
  texts: readonly string[],
): Promise<{ checker: Checker; finish: () => Promise<object> }> {
  const client = await database.client()
  await client.query(`CREATE TABLE ${table} (id integer GENERATED ALWAYS AS IDENTITY, url text)`)
  for (const text of texts) await client.query(`INSERT INTO ${table} (url) VALUES ($1)`, [text])
  const peer: Peer = { name: table, table, fill: async () => {}, close: async () => {} }
  const checker = new Checker(peer)
  return { checker, finish: async () => await checker.finish(client) }
}

const answer = (id: string, text: string, created?: boolean): Outcome => ({ id, text, created })

const NOTHING = { errors: 0, wrongRow: 0, wrongFlag: 0, secondId: 0, noFlag: false, firstError: undefined }

test('the benchmark finds nothing wrong with right answers, of one MD5 too', async () => {
  const { checker, finish } = await checkerOf('two_texts', STEVENS)
  const expected = [...STEVENS].map((text) => ({ text, created: true }))
  checker.check(expected, [answer('1', STEVENS[0], true), answer('2', STEVENS[1], true)])
  expect(await finish()).toEqual(NOTHING)
})

test('the benchmark counts the row of another text, and ids that are those of none', async () => {
  const { checker, finish } = await checkerOf('wrong_row', ['a', 'b'])
  checker.check([{ text: 'a', created: false }], [answer('2', 'b', false)])
  checker.check([{ text: 'b', created: false }], [answer('1', 'b', false)])
  expect(await finish()).toEqual({ ...NOTHING, wrongRow: 2 })
})

test('the benchmark counts wrong flags: of one call, and of callers that all say they created the row', async () => {
  const { checker, finish } = await checkerOf('wrong_flag', ['a', 'b'])
  checker.check([{ text: 'a', created: false }], [answer('1', 'a', true)])
  const both = { text: 'b', created: 'once' } as const
  checker.check([both, both], [answer('2', 'b', true), answer('2', 'b', true)])
  expect(await finish()).toEqual({ ...NOTHING, wrongFlag: 2 })
})

test('the benchmark counts texts that are stored twice', async () => {
  const { checker, finish } = await checkerOf('twice', ['a', 'a'])
  checker.check([{ text: 'a', created: true }], [answer('1', 'a', true)])
  expect(await finish()).toEqual({ ...NOTHING, secondId: 1 })
})

test('the benchmark counts errors, and says the first', async () => {
  const { checker, finish } = await checkerOf('errors', [])
  checker.check([{ text: 'a', created: true }], [new Error('outer', { cause: new Error('no such thing') })])
  expect(await finish()).toEqual({ ...NOTHING, errors: 1, firstError: 'no such thing' })
})
