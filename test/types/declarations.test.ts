import { Column, EntitySchema } from 'typeorm'
import { expectTypeOf, test } from 'vitest'
import {
  type Digest,
  UniqueText,
  uniqueTextSchema,
  type UniqueTextErrorCode,
  type UniqueTextError,
  type UniqueTextPropertyOptions,
} from '../../src'
import { type CanonicalUrlOptions, compose, normalizer, type Normalizer, trim, url } from '../../src/text'

// Nothing here runs: the compiler checks it (`npm run typecheck`).

test('@UniqueText on a property takes the options of a property', () => {
  void (() => {
    class Right {
      @UniqueText() bare!: string
      @UniqueText({ normalize: url(), scope: ['tenant'], digest: 'sha256', nullable: true }) full!: string | null
      @UniqueText({ normalize: normalizer('trimmed', 1, (text) => text.trim()) }) own!: string
      @UniqueText({ digest: 'sha256', guard: false }) guardless!: string
      @Column({ type: 'integer' }) tenant!: number
    }
    class Wrong {
      // @ts-expect-error (no such option)
      @UniqueText({ normalise: url() }) misspelt!: string
      // @ts-expect-error (several columns are declared on the class)
      @UniqueText({ as: 'x', columns: ['first'] }) several!: string
      // @ts-expect-error (no such digest)
      @UniqueText({ digest: 'md4' }) digest!: string
      // @ts-expect-error (with it or without)
      @UniqueText({ digest: 'sha256', guard: 'none' }) guard!: string
      // @ts-expect-error (a list of names)
      @UniqueText({ scope: 'tenant' }) scope!: string
      // @ts-expect-error (a normalizer is synchronous)
      @UniqueText({ normalize: normalizer('later', 1, async (text: string) => text) }) later!: string
      // @ts-expect-error (nobody could see that a bare function has changed)
      @UniqueText({ normalize: (text: string) => text.trim() }) bareFunction!: string
      // @ts-expect-error (the class's "parse" fills columns, and a property has none to fill)
      @UniqueText({ parse: () => null }) parse!: string
    }
    return [Right, Wrong]
  })
})

test('mistakes in options are explained by those of a property', () => {
  expectTypeOf<Parameters<typeof UniqueText>>().toEqualTypeOf<[options?: UniqueTextPropertyOptions | undefined]>()
})

test('@UniqueText stands on what can be a text', () => {
  void (() => {
    class Right {
      @UniqueText() required!: string
      @UniqueText() nullable!: string | null
      @UniqueText() optional?: string
      @UniqueText() literal!: 'a' | 'b'
      @UniqueText() branded!: string & { readonly brand: true }
      @Column({ type: 'text', transformer: [] }) @UniqueText() transformed!: URL
      @UniqueText() readonly frozen!: string
      // Neither is seen from without.
      @UniqueText() protected hidden!: string
      @UniqueText() private own!: string
      read(): string {
        return this.own
      }
    }
    class Wrong {
      // @ts-expect-error (a number is no text)
      @UniqueText() number!: number
      // @ts-expect-error (nor is a number that may be missing)
      @UniqueText() maybe!: number | null
      // @ts-expect-error (nor is a Date)
      @UniqueText() date!: Date
      // @ts-expect-error (nor is a boolean)
      @UniqueText() flag!: boolean
      // @ts-expect-error (it is called: @UniqueText())
      @UniqueText bare!: string
    }
    const composed = (): PropertyDecorator => UniqueText({ normalize: trim() })
    return [Right, Wrong, composed]
  })
})

test('@UniqueText on a class takes the options of a class', () => {
  void (() => {
    @UniqueText({ as: 'both', columns: ['first', { property: 'second', prefix: '/' }] })
    class Right {
      first!: string
    }
    // @ts-expect-error (which columns?)
    @UniqueText()
    class Bare {
      first!: string
    }
    // @ts-expect-error (which columns?)
    @UniqueText({ as: 'both' })
    class WithoutColumns {
      first!: string
    }
    // @ts-expect-error (what shall "by" call it?)
    @UniqueText({ columns: ['first'] })
    class WithoutName {
      first!: string
    }
    // @ts-expect-error (each column has its own)
    @UniqueText({ as: 'both', columns: ['first'], normalize: trim() })
    class WithNormalizer {
      first!: string
    }
    return [Right, Bare, WithoutColumns, WithoutName, WithNormalizer]
  })
})

test('uniqueTextSchema gives the options of the same EntitySchema', () => {
  interface Plain {
    id: number
    text: string
  }
  const make = () =>
    new EntitySchema<Plain>(
      uniqueTextSchema(
        { name: 'Plain', columns: { id: { type: 'integer', primary: true } } },
        { text: { normalize: trim() } },
      ),
    )
  expectTypeOf(make).returns.toEqualTypeOf<EntitySchema<Plain>>()
  // @ts-expect-error (no such option)
  void (() => uniqueTextSchema({ name: 'Plain', columns: {} }, { text: { normalise: trim() } }))
})

test('normalizers are made of text to text', () => {
  expectTypeOf(normalizer('upper', 1, (text) => text.toUpperCase())).toEqualTypeOf<Normalizer>()
  expectTypeOf(compose(trim(), url())).toEqualTypeOf<Normalizer>()
  // @ts-expect-error (a version is a number)
  void (() => normalizer('upper', '1', (text) => text))
  // @ts-expect-error (text to text)
  void (() => normalizer('length', 1, (text) => text.length))
})

test('only the canonical preset has options', () => {
  expectTypeOf(url('canonical', { stripHash: true })).toEqualTypeOf<Normalizer>()
  expectTypeOf<CanonicalUrlOptions['stripHash']>().toEqualTypeOf<boolean | undefined>()
  // @ts-expect-error (no such preset)
  void (() => url('loose'))
  // @ts-expect-error (no options)
  void (() => url('safe', { stripHash: true }))
  // @ts-expect-error (no such option)
  void (() => url('canonical', { stripFragment: true }))
})

test('the code of an error is one of a known list', () => {
  expectTypeOf<UniqueTextError['code']>().toEqualTypeOf<UniqueTextErrorCode>()
  expectTypeOf<Digest['type']>().toEqualTypeOf<'uuid' | 'bytea'>()
})
