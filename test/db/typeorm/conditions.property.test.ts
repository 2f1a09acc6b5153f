import { type Arbitrary, array, assert, asyncProperty, constant, constantFrom, letrec, oneof } from 'fast-check'
import { And, Any, Equal, FindOperator, In, IsNull, Like, Not, Or, type Repository } from 'typeorm'
import { beforeAll, expect, test } from 'vitest'
import { compose, lowerCase, normalizer, Refusal, trim } from '../../../src/text'
import { textEquals, textIn } from '../../../src/typeorm-calls'
import { useDatabase } from '../../support/database'
import { fewHashes } from '../../support/digests'
import { entity, text } from '../../support/entity'

/** Refuses every text with an x. */
const withoutX = normalizer('without-x', 1, (text) => {
  if (text.includes('x')) throw new Refusal('it has an x')
  return text
})
const normalize = compose(trim(), lowerCase(), withoutX)

const Note = entity('Note', { text: text({ normalize, nullable: true, digest: fewHashes(2) }) })
type Note = InstanceType<typeof Note>

const STORED = ['a', 'b', 'c', 'd', null] as const
const GIVEN = ['a', 'A ', ' b', 'c', 'e', 'x', ' X']

const db = useDatabase()
let notes: Repository<Note>
let plain: Repository<Note>

beforeAll(async () => {
  notes = (await db.dataSource([Note])).getRepository(Note)
  plain = (await db.dataSource([Note], { synchronize: false }, { rewriteQueries: false })).getRepository(Note)
  await notes.insert(STORED.map((text) => ({ text })))
})

/** What SQL makes of a comparison with NULL. */
type Truth = boolean | null

/** A condition, and what it says of a stored text. */
interface Condition {
  readonly shown: string
  readonly operator: () => FindOperator<string>
  readonly holds: (stored: string | null) => Truth
}

const spelled = (given: string): string | undefined =>
  given.includes('x') || given.includes('X') ? undefined : given.trim().toLowerCase()

const isOneOf = (given: readonly string[], stored: string | null): Truth => {
  if (given.length === 0) return false
  return stored === null ? null : given.map(spelled).includes(stored)
}

const not = (truth: Truth): Truth => (truth === null ? null : !truth)
const and = (truths: readonly Truth[]): Truth => (truths.includes(false) ? false : truths.includes(null) ? null : true)
const or = (truths: readonly Truth[]): Truth => not(and(truths.map(not)))

const one = constantFrom(...GIVEN)
const several = array(one, { maxLength: 3 })

const equality = (name: string, make: (text: string) => FindOperator<string>): Arbitrary<Condition> =>
  one.map((text) => ({
    shown: `${name}(${JSON.stringify(text)})`,
    operator: () => make(text),
    holds: (stored) => isOneOf([text], stored),
  }))

const membership = (name: string, make: (texts: string[]) => FindOperator<string>): Arbitrary<Condition> =>
  several.map((texts) => ({
    shown: `${name}(${JSON.stringify(texts)})`,
    operator: () => make(texts),
    holds: (stored) => isOneOf(texts, stored),
  }))

const junction = (
  name: string,
  make: (...operands: FindOperator<string>[]) => FindOperator<string>,
  combine: (truths: readonly Truth[]) => Truth,
): ((operands: Arbitrary<Condition>) => Arbitrary<Condition>) => {
  const toCondition = (operands: readonly Condition[]): Condition => ({
    shown: `${name}(${operands.map(({ shown }) => shown).join(', ')})`,
    operator: () => make(...operands.map(({ operator }) => operator())),
    holds: (stored) => combine(operands.map(({ holds }) => holds(stored))),
  })
  return (operands) => array(operands, { minLength: 1, maxLength: 3 }).map(toCondition)
}

const conjunction = junction('And', And, and)
const disjunction = junction('Or', Or, or)

const { condition } = letrec<{ condition: Condition }>((tie) => ({
  condition: oneof(
    { maxDepth: 3, depthSize: 'small' },
    equality('Equal', Equal),
    equality('textEquals', textEquals),
    membership('In', In),
    membership('textIn', textIn),
    // TypeORM's own ANY of an empty list is NULL for NULL, and false for the rest.
    membership('Any', Any).filter(({ shown }) => shown !== 'Any([])'),
    constant<Condition>({ shown: 'IsNull()', operator: () => IsNull(), holds: (stored) => stored === null }),
    constant<Condition>({
      shown: "Like('a%')",
      operator: () => Like('a%'),
      holds: (stored) => (stored === null ? null : stored.startsWith('a')),
    }),
    tie('condition').map(({ shown, operator, holds }) => ({
      shown: `Not(${shown})`,
      operator: () => Not(operator()),
      holds: (stored: string | null) => not(holds(stored)),
    })),
    conjunction(tie('condition')),
    disjunction(tie('condition')),
  ),
}))

test('a condition finds the rows that it says, with the hash and without, however operators are nested', async () => {
  await assert(
    asyncProperty(condition, async ({ operator, holds }) => {
      const expected = STORED.flatMap((text, index) => (holds(text) === true ? index + 1 : []))
      const ids = (found: readonly Note[]): number[] =>
        found.map(({ id }) => id).toSorted((left, right) => left - right)
      expect(ids(await notes.findBy({ text: operator() }))).toEqual(expected)
      expect(ids(await notes.createQueryBuilder().where({ text: operator() }).getMany())).toEqual(expected)
      expect(ids(await plain.findBy({ text: operator() }))).toEqual(expected)
    }),
    { numRuns: 500 },
  )
})
