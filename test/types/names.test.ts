import { Column, type EntityManager, PrimaryGeneratedColumn, type Repository } from 'typeorm'
import { expectTypeOf, test } from 'vitest'
import { type FindOrCreateResult, firstFreeText, type TakenText } from '../../src'
import {
  findHolder,
  findOrCreateHolder,
  type FormerName,
  formerNamesOf,
  type Holder,
  type Name,
  rename,
  swapNames,
  UniqueName,
} from '../../src/names'
import { lowerCase } from '../../src/text'

// Nothing here runs: the compiler checks it (`npm run typecheck`).

declare const manager: EntityManager
declare const names: Repository<Name>

class User {
  @PrimaryGeneratedColumn('identity', { type: 'integer' }) id!: number
  @UniqueName({ namespace: 'handle' }) handle!: string
  @UniqueName({ namespace: 'nick', nullable: true }) nick!: string | null
  @Column({ type: 'integer' }) age!: number
}

test('@UniqueName takes its own options, on what can be a text', () => {
  void (() => {
    class Right {
      @UniqueName({ namespace: 'a' }) bare!: string
      @UniqueName({ namespace: 'a', normalize: lowerCase(), nullable: true, name: 'x' }) full!: string | null
      @UniqueName({ namespace: 'a', former: 'redirect' }) redirecting!: string
      @UniqueName({ namespace: 'a', former: { reserveFor: '90 days' } }) reserved!: string
    }
    class Wrong {
      // @ts-expect-error (a name needs its namespace)
      @UniqueName({}) nowhere!: string
      // @ts-expect-error (an argument is required)
      @UniqueName() nothing!: string
      // @ts-expect-error (no such policy)
      @UniqueName({ namespace: 'a', former: 'keep' }) former!: string
      // @ts-expect-error (no such unit)
      @UniqueName({ namespace: 'a', former: { reserveFor: '90 moons' } }) unit!: string
      // @ts-expect-error (the namespace is the scope)
      @UniqueName({ namespace: 'a', scope: ['tenant'] }) scope!: string
      // @ts-expect-error (a number is no text)
      @UniqueName({ namespace: 'a' }) number!: number
    }
    return [Right, Wrong]
  })
})

test('rename takes the entity and texts', () => {
  void (async () => {
    expectTypeOf(await rename(manager, User, 1, { handle: 'a', nick: null })).toEqualTypeOf<User>()
    // @ts-expect-error (no such property)
    await rename(manager, User, 1, { hnadle: 'a' })
    // @ts-expect-error (a number is no name)
    await rename(manager, User, 1, { age: 7 })
    // @ts-expect-error (the column is NOT NULL)
    await rename(manager, User, 1, { handle: null })
  })
})

test('the operations give what they find', () => {
  void (async () => {
    expectTypeOf(await findHolder(manager, 'handle', 'a', { former: true })).toEqualTypeOf<Holder | null>()
    const found = await findOrCreateHolder(manager, User, { handle: 'a' }, { by: 'handle' })
    expectTypeOf(found).toEqualTypeOf<FindOrCreateResult<User>>()
    expectTypeOf(await swapNames(manager, User, 1, 2, { by: 'nick' })).toEqualTypeOf<[User, User]>()
    expectTypeOf(await swapNames(manager, User, { id: 1 }, { id: 2 })).toEqualTypeOf<[User, User]>()
    expectTypeOf(await formerNamesOf(manager, User, 1)).toEqualTypeOf<FormerName[]>()
    expectTypeOf(await firstFreeText(manager, User, [{ handle: 'a' }], { id: 1 })).toEqualTypeOf<{
      handle: string
    } | null>()
    // @ts-expect-error (no such property)
    await firstFreeText(manager, User, [{ handle: 'a', handel: 'b' }])
    // @ts-expect-error (the id of a user is a number)
    await firstFreeText(manager, User, [{ handle: 'a' }], { id: '1' })
    // @ts-expect-error (two rows)
    await swapNames(manager, User, 1)
  })
})

test('names can be queried as any entity, and what is taken says how', () => {
  void (async () => {
    const [name] = await names.findBy({ namespace: 'handle', state: 'reserved', holder: 'user' })
    expectTypeOf(name?.state).toEqualTypeOf<'held' | 'reserved' | 'redirect' | undefined>()
    // @ts-expect-error (no such state)
    await names.findBy({ state: 'free' })
  })
  expectTypeOf<TakenText['state']>().toEqualTypeOf<'reserved' | 'redirect' | undefined>()
  expectTypeOf<TakenText['holder']>().toEqualTypeOf<string | undefined>()
})
