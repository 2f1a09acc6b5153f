import { expect, test } from 'vitest'
import { AdoptionError } from '../../../src/adopt/session'
import { againstOwn, ownConstraint } from '../../../src/adopt/refusals'

interface Told {
  readonly code?: string
  readonly constraint?: string | undefined
  readonly schema?: string
  readonly table?: string | undefined
}

const OF_USER = { severity: 'ERROR', code: '23505', constraint: 'own', schema: 'public', table: 'page' }

/** An error as `pg` makes it of what the server says of a unique index of the user's. */
const told = (changes: Told = {}): Error => Object.assign(new Error('any language'), OF_USER, changes)

const refusal = (error: Error): unknown => {
  try {
    return againstOwn(error, {
      on: { schema: 'public', table: 'page' },
      what: 'a hash',
      ours: ['hash index'],
      ofUnique: 'Or merge.',
    })
  } catch (thrown) {
    return thrown
  }
}

test.each<[string, Told, string]>([
  ['a unique index', {}, '"own" of "public"."page", which is yours,'],
  ['a check', { code: '23514' }, '"own" of "public"."page", which is yours,'],
  ['a foreign key of another table', { code: '23503', table: 'link' }, '"own" of "public"."link", which is yours,'],
  ['a domain', { code: '23514', table: undefined }, '"own", which is yours,'],
])('%s of the user is named', (_, changes, name) => {
  expect(ownConstraint(told(changes), ['hash index'])).toBe(name)
})

test.each<[string, Told]>([
  ['an index of ours', { constraint: 'hash index' }],
  ['NOT NULL, which names no constraint', { code: '23502', constraint: undefined }],
  ['an index of the catalog, where two sessions make one object', { schema: 'pg_catalog', table: 'pg_class' }],
  ['what a trigger raises with the name of a constraint', { code: 'P0001' }],
])('%s is not a constraint of the user, so the error stays as it is', (_, changes) => {
  const error = told(changes)
  expect(ownConstraint(error, ['hash index'])).toBeUndefined()
  expect(refusal(error)).toBe(error)
})

test('the refusal has the SQLSTATE, what to do, and the error as its cause', () => {
  const error = told({ code: '23514' })
  const thrown = refusal(error)
  expect(thrown).toBeInstanceOf(AdoptionError)
  expect(thrown).toMatchObject({
    reason: 'rejected',
    cause: error,
    message:
      '"own" of "public"."page", which is yours, refuses a hash (SQLSTATE 23514). Correct the row, or drop the ' +
      'constraint or index, and run the same command again.',
  })
})

test.each<[string, Told, boolean]>([
  ['a unique index', {}, true],
  ['an exclusion', { code: '23P01' }, true],
  ['a check', { code: '23514' }, false],
  ['a unique index of another table', { table: 'link' }, false],
  ['a unique index of a namesake in another schema', { schema: 'other' }, false],
])('what to do about equal texts is told of %s: %s', (_, changes, isTold) => {
  expect(String(refusal(told(changes))).endsWith(' Or merge.')).toBe(isTold)
})
