import { testInterleavings } from './play-interleavings'

testInterleavings(['REPEATABLE READ', 'SERIALIZABLE'])
