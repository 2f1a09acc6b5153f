import * as fc from 'fast-check'
import type { DataSource } from 'typeorm'
import { beforeAll, describe, expect, test } from 'vitest'
import { findOrCreate, findOrCreateMany, UniqueText } from '../../../src'
import { hashAsText, hashExpression, hashOfTexts } from '../../../src/sql/text-table'
import { digests } from '../../../src/text/digest'
import { useDatabase } from '../../support/database'
import { column, entity, plain } from '../../support/entity'
import { textTable } from '../../support/guarded-table'

const Guarded = entity('Guarded', { first: column('text'), second: plain() })
UniqueText({ as: 'both', columns: ['first', 'second'] })(Guarded)
const Guardless = entity('Guardless', { first: column('text'), second: plain() })
UniqueText({ as: 'both', columns: ['first', 'second'], digest: 'sha256', guard: false })(Guardless)

const db = useDatabase()
let dataSource: DataSource
beforeAll(async () => {
  dataSource = await db.dataSource([Guarded, Guardless])
})

/** What a separator, a length or a NULL could be taken for, and characters of one to four bytes. */
const part = fc.option(
  fc.string({ maxLength: 4, unit: fc.constantFrom('a', '1', '2', ':', '-', '?', ' ', 'ä', '€', '😀') }),
)
const DIGESTS = Object.values(digests)
const PREFIXES = [
  ['', '', ''],
  ['', '?', '#'],
  ['', '?', ''],
]

test.each(PREFIXES)(
  'a hash in JavaScript is that in SQL, with the prefixes "%s", "%s" and "%s"',
  async (...prefixes) => {
    const client = await db.client()
    const rows = fc.sample(fc.tuple(part, part, part), 200)
    const text = prefixes.map((prefix, index) => ({ name: `c${index}`, prefix }))
    for (const digest of DIGESTS) {
      const hashed = await client.query<{ hash: string }>(
        `SELECT ${hashAsText({ hash: 'hash', digest }, 'h')} AS hash
         FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS r (c0, c1, c2, place),
           LATERAL (SELECT ${hashExpression({ text, digest }, 'r')} AS hash) AS h ORDER BY r.place`,
        [0, 1, 2].map((index) => rows.map((row) => row[index] ?? null)),
      )
      expect(hashed.rows.map(({ hash }) => hash)).toStrictEqual(rows.map((row) => hashOfTexts({ text, digest }, row)))
    }
  },
)

test('texts of several columns without prefixes differ in what is hashed', () => {
  const { text } = textTable({ text: ['a', 'b', 'c'].map((name) => ({ name, prefix: '' })) })
  const hashed = (parts: readonly (string | null)[]): string =>
    hashOfTexts({ text, digest: { ...digests.md5, js: (whole) => whole } }, parts)
  const row = fc.tuple(part, part, part)
  fc.assert(
    fc.property(row, row, (one, other) => {
      expect(hashed(one) === hashed(other)).toBe(JSON.stringify(one) === JSON.stringify(other))
    }),
  )
})

describe.each([{ entity: Guarded }, { entity: Guardless }])('$entity.name', ({ entity }) => {
  test('110 splits of one text have a hash each', async () => {
    const whole = 'x'.repeat(109)
    const rows = Array.from({ length: 110 }, (_, at) => ({ first: whole.slice(0, at), second: whole.slice(at) }))
    const results = await findOrCreateMany(dataSource.manager, entity, rows)
    expect(results.filter((one) => 'created' in one && one.created)).toHaveLength(110)
    const [numbers] = await dataSource.query<unknown[]>(
      `SELECT count(*)::int, count(DISTINCT "bothHash")::int AS hashes, max("bothHashNumber") AS highest FROM ${dataSource.getMetadata(entity).tableName}`,
    )
    expect(numbers).toStrictEqual({ count: 110, hashes: 110, highest: 0 })
  })

  test('NULL, an empty text and the sign of NULL are three texts', async () => {
    for (const second of [null, '', '-']) {
      const row = { first: 'nothing', second }
      expect(await findOrCreate(dataSource.manager, entity, row)).toMatchObject({ created: true, entity: row })
      expect(await findOrCreate(dataSource.manager, entity, row)).toMatchObject({ created: false, entity: row })
    }
  })
})
