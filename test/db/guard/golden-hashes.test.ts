import { readFileSync } from 'node:fs'
import path from 'node:path'
import { expect, test } from 'vitest'
import { LIBRARY_SQL } from '../../../src/sql/library'
import { hashOfTexts, hashOfValues } from '../../../src/sql/text-table'
import { url } from '../../../src/text'
import { digests } from '../../../src/text/digest'
import { Refusal } from '../../../src/text/normalizer'
import { useDatabase } from '../../support/database'

type Hashes = Readonly<Record<'md5' | 'sha256', string>>
type Values = readonly (string | null)[]

const golden = JSON.parse(
  readFileSync(path.resolve(import.meta.dirname, '../../../docs/golden-hashes.json'), 'utf8'),
) as {
  readonly texts: readonly (Hashes & { readonly text: string })[]
  readonly repeated: readonly (Hashes & { readonly text: string; readonly times: number })[]
  readonly columns: readonly (Hashes & { readonly values: Values })[]
  readonly prefixed: {
    readonly prefixes: readonly string[]
    readonly rows: readonly (Hashes & { readonly values: Values })[]
  }
  readonly normalized: readonly (Partial<Hashes> & { readonly given: string; readonly text: string | null })[]
}

const client = useDatabase().useClient({ emptied: true })

const vectors = [
  ...golden.texts.map(({ text, ...hashes }) => ({ values: [text], prefixes: [''], hashes })),
  ...golden.repeated.map(({ text, times, ...hashes }) => ({ values: [text.repeat(times)], prefixes: [''], hashes })),
  ...golden.columns.map(({ values, ...hashes }) => ({ values, prefixes: values.map(() => ''), hashes })),
  ...golden.prefixed.rows.map(({ values, ...hashes }) => ({ values, prefixes: golden.prefixed.prefixes, hashes })),
]

test.each(['md5', 'sha256'] as const)('%s is the same in the file, in this package and in Postgres', async (name) => {
  const digest = digests[name]
  expect(vectors.length).toBeGreaterThan(25)
  for (const { values, prefixes, hashes } of vectors) {
    const text = prefixes.map((prefix, index) => ({ name: `c${index}`, prefix }))
    const expected = `${name === 'md5' ? '' : '\\x'}${hashes[name]}`
    expect(hashOfTexts({ text, digest }, values)).toBe(expected)
    const parameters = values.map((_, index) => `$${index + 1}::pg_catalog.text`)
    const sql = hashOfValues({ text, digest, nullable: false }, parameters)
    const { rows } = await client.query<{ hash: string }>(`SELECT (${sql})::text AS hash`, [...values])
    expect(rows[0]?.hash.replaceAll('-', '')).toBe(expected)
  }
})

test('the normalized URLs are those of url()', () => {
  const normalize = (given: string): string | null => {
    try {
      return url().normalize(given)
    } catch (error) {
      if (error instanceof Refusal) return null
      throw error
    }
  }
  const computed = golden.normalized.map(({ given }) => {
    const text = normalize(given)
    return {
      given,
      text,
      ...(text === null ? {} : { md5: digests.md5.js(text), sha256: digests.sha256.js(text).slice(2) }),
    }
  })
  expect(computed).toEqual(golden.normalized)
})

// The check of the table refuses any other hash, and the triggers make it.
test.each(vectors.filter(({ values }) => values.length > 1))('attach makes the hash of $values', async (vector) => {
  await client.query(LIBRARY_SQL)
  const { values, prefixes, hashes } = vector
  const text = values.map((_, index) => `c${index}`)
  await client.query(
    `CREATE TABLE several (${text.map((name) => `${name} text`).join(', ')}, "tHash" bytea, "tHashNumber" int, "tHashChained" boolean);
     CREATE UNIQUE INDEX one ON several ("tHash", "tHashNumber")`,
  )
  await client.query(`SELECT unique_text_attach_v1('several', $1)`, [
    JSON.stringify({ name: 't', text, prefixes, index: 'one', digest: 'sha256' }),
  ])
  const marks = values.map((_, index) => `$${index + 1}`).join(', ')
  const { rows } = await client.query<{ hash: string }>(
    `INSERT INTO several VALUES (${marks}) RETURNING pg_catalog.encode("tHash", 'hex') AS hash`,
    [...values],
  )
  expect(rows).toEqual([{ hash: hashes.sha256 }])
})
