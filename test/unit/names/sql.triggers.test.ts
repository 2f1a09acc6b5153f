import { expect, test } from 'vitest'
import {
  findByNameStatement,
  findHolderStatement,
  releaseExpiredStatement,
  renameStatement,
  swapNamesStatement,
} from '../../../src/names/sql/statements'
import { takenNamesStatement } from '../../../src/sql/names-table'
import { directNames, namesOfHolder } from '../../../src/names/sql/attach'
import { releaseNames } from '../../../src/sql/library'
import { holderTable, namesTable, RESERVE } from '../../support/names-table'
import { describeLookups } from '../../support/sql-lint'

const names = namesTable()
const users = holderTable('users', names, {
  names: [
    { column: 'handle', namespace: 'handle', former: { state: 'redirect', interval: '90 days' } },
    { column: 'nick', namespace: 'handle', former: RESERVE },
  ],
})

const STATEMENTS: Readonly<Record<string, readonly string[]>> = {
  'names of a holder': [namesOfHolder(users).attach, namesOfHolder(users).detach],
  'names written directly': [directNames(names).attach],
  'names of rows that are gone': [releaseNames(users, '"names"')],
}

test.each(Object.entries(STATEMENTS))(
  '%s: no backslash, which TypeORM does not escape in migrations',
  (_, statements) => {
    expect(statements.filter((one) => one.includes('\\'))).toEqual([])
  },
)

test('the table of names has a schema in a declaration if that is not the schema of the holder', () => {
  const kept = (holder: string | undefined, of: string | undefined): string =>
    namesOfHolder(holderTable('users', namesTable(undefined, of), { schema: holder }), 'search').declaration.in
  expect(kept(undefined, undefined)).toBe('"names"')
  expect(kept('a', 'a')).toBe('"names"')
  expect(kept(undefined, 'b')).toBe('"b"."names"')
  expect(kept('a', 'b')).toBe('"b"."names"')
  expect(kept('a', undefined)).toBe('"search"."names"')
})

test('a declaration says no more than it must', () => {
  const plain = holderTable('users', names)
  expect(namesOfHolder(plain).attach).toContain(
    `'{"key":["id"],"names":[{"column":"handle","namespace":"handle"}]}'::pg_catalog.jsonb`,
  )
})

const row = { holder: users, name: 'handle', row: { select: ['id'], spatial: new Map() } }
const ofClass = { ...row, only: { column: 'type', values: ['a', 'b'] } }
const changes = { version: 'version', updated: 'updated' }
test.each<[string, readonly string[]]>([
  ['what a migration does', Object.values(STATEMENTS).flat()],
  [
    'what calls send',
    [
      findByNameStatement({ ...row, only: undefined }),
      renameStatement(ofClass, ['handle'], changes),
      swapNamesStatement(ofClass, changes),
      releaseExpiredStatement(names),
      takenNamesStatement(names),
      ...[false, true].map((former) =>
        findHolderStatement(names, [{ table: users, read: row.row.select, spatial: row.row.spatial }], {
          former,
          entity: true,
        }),
      ),
    ].map(({ sql }) => sql),
  ],
])('%s looks nothing up by search_path', async (_, statements) => {
  expect(await describeLookups(statements)).toEqual([])
})
