import { createHash, randomBytes } from 'node:crypto'
import * as fc from 'fast-check'
import { EntitySchema } from 'typeorm'
import { describe, expect, test } from 'vitest'
import {
  DeclarationError,
  findOneByText,
  findOrCreate,
  findOrCreateMany,
  TextRejectedError,
  UniqueText,
  uniqueTextSchema,
} from '../../../src'
import { md5, sha256 } from '../../../src/text/digest'
import { unstorable } from '../../../src/text/normalizer'
import { useDatabase } from '../../support/database'
import { rowOf } from '../../support/results'
import { column, entity, plain, text } from '../../support/entity'

const db = useDatabase()

const Note = entity('Note', { text: text(), other: text({ digest: 'sha256', nullable: true }) })
const Parts = entity('Parts', { head: column('text'), tail: plain() })
UniqueText({ as: 'whole', columns: ['head', { property: 'tail', prefix: "'?\\" }] })(Parts)

const any = fc.string({ unit: 'binary', maxLength: 60 })
const storable = any.filter((text) => unstorable(text) === undefined)
const QUOTES = [`'`, `''`, `"`, '\\', '$1', '$guard$', ';', '--', '/*', '{}', '{"a"}', 'NULL', '\\x00', '%', '']
const ATTACKS = [`'); DROP TABLE note; --`, `\\'; DROP TABLE note; --`, `" ; DROP TABLE note; --`]
const UNICODE = ['\u00A0', '\uFEFF', 'ß', 'ẞ', 'İ', 'é', 'e\u0301', '👩‍👩‍👧‍👦', '\u{10FFFF}', '\uFFFF', '\u202E']
const BLANKS = ['\r\n', '\t', ' ', '\u0001', '\u007F', 'a'.repeat(5_000)]
const nasty = fc.constantFrom(...QUOTES, ...ATTACKS, ...UNICODE, ...BLANKS)
const glued = fc.tuple(nasty, storable).map(([left, right]) => left + right)
const texts = fc.oneof(storable, nasty, glued)

const dataSource = db.useDataSource([Note, Parts], { emptied: false })
const { manager } = dataSource

describe('any text that Postgres can store', () => {
  test('comes back as it was, once, by each way', async () => {
    const property = fc.asyncProperty(fc.array(texts, { minLength: 1, maxLength: 20 }), async (list) => {
      const rows = list.map((text) => ({ text }))
      const results = await findOrCreateMany(manager, Note, rows, { by: 'text' })
      for (const [place, text] of list.entries()) {
        const { entity } = rowOf(results[place])
        expect(entity.text).toBe(text)
        const one = await findOrCreate(manager, Note, { text }, { by: 'text' })
        expect(one).toEqual({ entity, created: false, attempts: 1 })
        expect(await findOneByText(manager, Note, { text }, { by: 'text' })).toEqual(entity)
      }
    })
    await fc.assert(property, { numRuns: 60 })
    const [count] = (await dataSource.query('select count(*) = count(distinct text) as once from note')) as unknown[]
    expect(count).toEqual({ once: true })
  })

  test('has the same digest in JavaScript and in SQL', async () => {
    const property = fc.asyncProperty(fc.array(texts, { minLength: 1, maxLength: 50 }), async (list) => {
      const rows = (await dataSource.query(
        `select replace((${md5.sql('t')})::text, '-', '') as md5, (${sha256.sql('t')})::text as sha256
           from unnest($1::text[]) with ordinality as u (t, place) order by place`,
        [list],
      )) as unknown[]
      expect(rows).toEqual(list.map((text) => ({ md5: md5.js(text), sha256: sha256.js(text) })))
    })
    await fc.assert(property, { numRuns: 60 })
  })

  test('made of several columns is told apart, column by column', async () => {
    const tail = fc.option(texts, { nil: null })
    const property = fc.asyncProperty(texts, tail, async (head, end) => {
      const { entity } = await findOrCreate(manager, Parts, { head, tail: end })
      expect(entity).toMatchObject({ head, tail: end })
      // Composes to the same text, in other columns: a collision, no duplicate.
      const whole = { head: `${head}${end === null ? '' : `'?\\${end}`}`, tail: null }
      const other = await findOrCreate(manager, Parts, whole)
      expect(other.entity.id === entity.id).toBe(end === null)
    })
    await fc.assert(property, { numRuns: 60 })
  })
})

test('what cannot be stored exactly is refused, and nothing else is', async () => {
  const property = fc.asyncProperty(any, async (text) => {
    const outcome = await findOrCreate(manager, Note, { text }, { by: 'text' }).catch((e: unknown) => e)
    expect(outcome instanceof TextRejectedError).toBe(unstorable(text) !== undefined)
  })
  await fc.assert(property, { numRuns: 200 })
})

test('names that try to break out of their quotes are names', async () => {
  // No double quotes: TypeORM's own CREATE TABLE does not escape them. The guard's SQL is tested with them on its own.
  const attacks = [`x'; DROP TABLE note; --`, 'x$guard$; DROP TABLE note; --', 'x y', 'ü'.repeat(20)]
  for (const [place, attack] of attacks.entries()) {
    // TypeORM puts a table's name into literals, unescaped too.
    const table = attack.includes("'") ? `plain${place}` : attack
    const hidden = { hash: `h${attack}`, number: `n${attack}`, chained: `c${attack}` }
    const schema = new EntitySchema<Record<string, unknown>>(
      uniqueTextSchema(
        { name: `Attack${place}`, tableName: table, columns: { id: { type: Number, primary: true, generated: true } } },
        { text: { name: attack, indexName: `i${attack}`, hidden } },
      ),
    )
    const attacked = await db.dataSource([schema])
    const { entity } = await findOrCreate(attacked.manager, schema, { text: attack })
    expect(entity).toEqual({ id: 1, text: attack })
    await attacked.manager.insert(schema, { text: `${attack} by the guard` })
    expect((await attacked.driver.createSchemaBuilder().log()).upQueries).toEqual([])
    await attacked.destroy()
  }
  expect(await manager.count(Note)).toBeGreaterThan(0)
})

test('a property that was never declared is no way in', async () => {
  const values: { text: string } = JSON.parse('{ "text": "x", "id\\"; DROP TABLE note; --": 1, "__proto__": { "polluted": true } }') // prettier-ignore
  for (const by of ['text', 'x"; DROP TABLE note']) {
    const refused = { code: 'INVALID_DECLARATION' }
    await expect(findOrCreate(manager, Note, values, { by })).rejects.toMatchObject(refused)
  }
  expect('polluted' in {}).toBe(false)
})

test('10,000 declarations worth of nonsense are refused with one class of error, or taken', () => {
  const value = fc.oneof(fc.anything(), fc.constantFrom('md5', 'sha256', 5, true, ['tenant'], [], ''))
  const limits = ['scope', 'digest', 'immutable', 'maxChainLength', 'normalize', 'nullable']
  const names = ['name', 'as', 'columns', 'indexName', 'hidden', 'x']
  const options = fc.dictionary(fc.constantFrom(...limits, ...names), value, { maxKeys: 4 })
  const refusal = (given: object): unknown => {
    try {
      // A prototype of its own each time: declarations are global.
      UniqueText(given)(function Nonsense() {}.prototype as object, 'text')
      return undefined
    } catch (error) {
      return error
    }
  }
  const property = fc.property(options, (given) => {
    const error = refusal(given)
    expect(error === undefined || error instanceof DeclarationError).toBe(true)
  })
  fc.assert(property, { numRuns: 10_000 })
})

// However long it takes: what is promised is that it can be done.
test('a text of 100 MB is stored and found', { timeout: 600_000 }, async () => {
  const text = randomBytes(50_000_000).toString('hex')
  expect(await findOrCreate(manager, Note, { text }, { by: 'text' })).toMatchObject({ created: true })
  const found = await findOrCreate(manager, Note, { text }, { by: 'text' })
  expect(found.created).toBe(false)
  const digest = (given: string): string => createHash('sha1').update(given).digest('hex')
  expect(digest(found.entity.text)).toBe(digest(text))
})
