import { Column, Entity, PrimaryGeneratedColumn } from 'typeorm'
import { beforeEach, expect, test } from 'vitest'
import { UniqueText } from '../../../src'
import { runPreview } from '../../../src/cli/commands'
import { parseInvocation } from '../../../src/cli/usage'
import { preview } from '../../../src/doctor'
import { lowerCase, normalizer, Refusal } from '../../../src/text'
import { useDatabase } from '../../support/database'

@Entity('link')
class Link {
  @PrimaryGeneratedColumn('identity') id!: number
  @Column({ type: 'integer', default: 1 }) site!: number
  @UniqueText({ scope: ['site'] }) url!: string
  @Column({ type: 'text', nullable: true }) title!: string | null
}

const db = useDatabase()
const client = db.useClient()

const open = async () => await db.dataSource([Link], { synchronize: false })

beforeEach(async () => {
  await client.query(`drop schema public cascade; create schema public;
    create table link (id integer primary key, site integer not null, url text not null, title text);
    insert into link values (1, 1, 'A', null), (2, 1, 'a', null), (3, 2, 'A', 'One'), (4, 1, 'b', 'one'),
      (5, 1, 'B', null), (6, 1, 'c', null), (7, 1, 'c', null), (8, 1, 'bad', null), (9, 1, 'b', null)`)
})

const strict = normalizer('strict', 1, (text) => {
  if (text === 'bad') throw new Refusal('it is bad')
  return text.toLowerCase()
})

test('texts that would become one are shown with their keys, and those that would be refused', async () => {
  expect(await preview(await open(), Link, { normalize: strict })).toEqual({
    rows: 9,
    changed: 3,
    refused: [{ reason: 'it is bad', rows: 1, keys: [{ id: 8 }] }],
    sample: 1,
    groups: 2,
    surplus: 3,
    first: [
      { rows: 2, texts: ['A', 'a'], keys: [{ id: 1 }, { id: 2 }] },
      { rows: 3, texts: ['b', 'B'], keys: [{ id: 4 }, { id: 5 }, { id: 9 }] },
    ],
  })
})

test('a column that declares nothing is looked at too, and one that is not there is refused', async () => {
  const dataSource = await open()
  expect(await preview(dataSource, Link, { normalize: lowerCase(), property: 'title' })).toMatchObject({
    changed: 1,
    groups: 1,
  })
  await expect(preview(dataSource, Link, { normalize: lowerCase(), property: 'other' })).rejects.toMatchObject({
    code: 'INVALID_DECLARATION',
  })
})

test('a part of all texts is looked at where they are many, and no pair of that part is missed', async () => {
  await client.query(`truncate link; insert into link select i, 1, case when i % 2 = 0 then 'Text ' else 'text ' end || i / 2, null
    from generate_series(2, 4001) as i`)
  const report = await preview(await open(), Link, { normalize: lowerCase(), sampleTexts: 300 })
  expect(report).toMatchObject({ rows: 4000, changed: 2000 })
  expect(report.sample).toBeLessThanOrEqual(1 / 8)
  expect(report.groups).toBe(report.surplus)
  expect(Math.abs(report.groups / report.sample - 2_000)).toBeLessThan(600)
})

test('the command prints them', async () => {
  const dataSource = await open()
  const run = async (...normalize: string[]): Promise<string> => {
    const invocation = parseInvocation(['preview', '-d', 'x.ts', '--entity', 'Link', '--normalize', ...normalize])
    if (invocation.kind !== 'preview') throw new TypeError('Another command.')
    let out = ''
    const stream = { write: (text: string) => ((out += text), true) } as never
    const { signal } = new AbortController()
    await runPreview({ dataSource, invocation, streams: { stdout: stream, stderr: stream }, signal })
    return out
  }
  expect(await run('trim,lowerCase')).toMatch(
    /^9 rows; 3 texts would be changed\.\n2 groups of different texts would become one: 3 rows too many\.\n {2}2 rows, first keys: \{"id":1\} \{"id":2\}\n {4}A\n {4}a\n/,
  )
  await expect(run('upper')).rejects.toThrow('--normalize is one of')
  await expect(run('./nowhere.js')).rejects.toThrow('There is no file')
})
